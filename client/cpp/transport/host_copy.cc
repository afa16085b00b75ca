#include "client/cpp/transport/host_copy.h"

#include "client/cpp/device/driver.h"

namespace counterweight::client {

HostCopy::HostCopy(const PreparedRequest& original)
    : original_(original),
      copy_(original),
      inputs_(original.inputs.begin(), original.inputs.end()),
      outputs_(original.outputs.begin(), original.outputs.end()) {
  copy_.inputs = inputs_;
  copy_.outputs = outputs_;
  copy_.device = {};
}

std::byte* HostCopy::Allocate(size_t bytes) {
  // Uninitialized, since a copy fills it.
  memory_.push_back(std::unique_ptr<std::byte[]>(new std::byte[bytes]));
  return memory_.back().get();
}

Status HostCopy::Make() {
  const DeviceOfRequest& device = original_.device;
  Status status = device.driver->Synchronize(device.index, device.stream);
  for (Input& input : inputs_) {
    if (!status.ok()) return status;
    if (input.location != Location::kCuda) continue;
    std::byte* const to = Allocate(input.bytes);
    if (input.bytes > 0) {
      status =
          device.driver->CopyToHost(device.index, input.data, input.bytes, to);
    }
    input.data = to;
    input.location = Location::kHost;
  }
  for (Output& output : outputs_) {
    if (output.location != Location::kCuda) continue;
    output.data = Allocate(output.bytes);
    output.location = Location::kHost;
  }
  return status;
}

Status HostCopy::Return(Response* response) const {
  const DeviceOfRequest& device = original_.device;
  for (size_t i = 0; i < original_.outputs.size(); ++i) {
    const Output& output = original_.outputs[i];
    if (output.location != Location::kCuda) continue;
    OutputTensor& tensor = response->outputs[i];
    if (tensor.bytes > 0) {
      Status status = device.driver->CopyToDevice(device.index, tensor.data,
                                                  tensor.bytes, output.data);
      if (!status.ok()) return status;
    }
    tensor.data = static_cast<std::byte*>(output.data);
  }
  return {};
}

}  // namespace counterweight::client
