#include "client/cpp/shared_memory/shared_memory_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client/cpp/device/driver.h"
#include "client/cpp/transport/answer.h"
#include "client/cpp/transport/unary_call.h"

namespace counterweight::client {
namespace {

// A cache line, and a multiple of every element size.
constexpr size_t kAlignment = 64;

size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// True if the server no longer uses the regions.
bool IsServersLastWord(StatusCode code) {
  return code == StatusCode::kOk || code == StatusCode::kInvalidArgument ||
         code == StatusCode::kFailedPrecondition ||
         code == StatusCode::kResourceExhausted;
}

// The request's outputs, or those that an answer may have by default: the
// server ignores destinations of the ones that the method lacks.
std::vector<Output> WithDefaults(const PreparedRequest& request) {
  std::vector<Output> outputs(request.outputs.begin(), request.outputs.end());
  if (!outputs.empty()) return outputs;
  outputs = {{.role = v1::TENSOR_ROLE_WEIGHTS},
             {.role = v1::TENSOR_ROLE_KEEP_MASK}};
  for (const Input& input : request.inputs) {
    // Without them there is nothing to differentiate by.
    if (input.role == v1::TENSOR_ROLE_CURRENT_LOG_PROBS) {
      outputs.push_back({.role = v1::TENSOR_ROLE_GRADIENT});
    }
  }
  return outputs;
}

bool HasDevice(const std::vector<std::string>& devices,
               const DeviceUuid& device) {
  return std::find(devices.begin(), devices.end(),
                   std::string(device.data(), device.size())) != devices.end();
}

}  // namespace

bool EndsCall(const Status& status) {
  return status.code == StatusCode::kDeadlineExceeded ||
         status.code == StatusCode::kCancelled;
}

bool IsAboutSharedMemory(const Status& status) {
  return status.code == StatusCode::kInvalidArgument &&
         std::any_of(status.violations.begin(), status.violations.end(),
                     [](const FieldViolation& violation) {
                       return violation.field.find("shared_memory") !=
                              std::string::npos;
                     });
}

SharedMemoryCall::SharedMemoryCall(Registry* registry,
                                   const PreparedRequest& request)
    : registry_(*registry), request_(request), wanted_(WithDefaults(request)) {}

SharedMemoryCall::~SharedMemoryCall() {
  for (const DeviceRegion& region : lent_) registry_.EndUse(region);
}

std::vector<SharedMemoryCall::Tensor> SharedMemoryCall::Inputs() const {
  std::vector<Tensor> inputs;
  for (const Input& input : request_.inputs) {
    inputs.push_back({input.data, input.bytes, input.dtype, input.location});
  }
  return inputs;
}

std::vector<SharedMemoryCall::Tensor> SharedMemoryCall::Outputs() const {
  std::vector<Tensor> outputs;
  outputs.reserve(wanted_.size());
  for (const Output& output : wanted_) {
    outputs.push_back({output.data, OutputBytes(output.role, request_),
                       OutputDType(output.role), output.location});
  }
  return outputs;
}

Status SharedMemoryCall::LendTensors(const std::string& path,
                                     const std::vector<std::string>& devices,
                                     const std::vector<Tensor>& tensors,
                                     Access access, const Bounds& bounds,
                                     std::vector<Place>* places) {
  for (const Tensor& tensor : tensors) {
    Place& place = places->emplace_back();
    place.bytes = tensor.bytes;
    if (tensor.bytes == 0 || tensor.location != Location::kCuda) continue;
    DeviceRegion region{{}, access};
    const DeviceOfRequest& device = request_.device;
    Status status =
        device.driver->Export(device.index, tensor.data, &region.first);
    if (!status.ok()) return status;
    place.offset =
        reinterpret_cast<uint64_t>(tensor.data) - region.first.address;
    if (!HasDevice(devices, region.first.device)) {
      return {.code = StatusCode::kFailedPrecondition,
              .message = "the server does not compute on the tensors' device"};
    }
    if (place.offset % ElementBytes(tensor.dtype) != 0) {
      return {.code = StatusCode::kFailedPrecondition,
              .message = "a tensor lies across elements of its allocation"};
    }
    registry_.Use(region);
    lent_.push_back(region);
    std::string handle;
    status = registry_.Register(path, region, bounds, &handle);
    if (status.code == StatusCode::kResourceExhausted && registry_.Trim()) {
      status = registry_.Register(path, region, bounds, &handle);
    }
    device_refused_ = !status.ok() && !EndsCall(status) &&
                      status.code != StatusCode::kUnavailable &&
                      status.code != StatusCode::kResourceExhausted;
    if (!status.ok()) return status;
    place.device = region;
  }
  return {};
}

Status SharedMemoryCall::Lend(const std::string& path,
                              const std::vector<std::string>& devices,
                              const Bounds& bounds) {
  const DeviceOfRequest& device = request_.device;
  Status status =
      LendTensors(path, devices, Inputs(), Access::kInput, bounds, &inputs_);
  if (status.ok()) {
    status = LendTensors(path, devices, Outputs(), Access::kOutput, bounds,
                         &outputs_);
  }
  // The server knows no streams.
  if (status.ok() && device.driver != nullptr) {
    status = device.driver->Synchronize(device.index, device.stream);
  }
  return status;
}

Status SharedMemoryCall::FindPlaces(const std::vector<Tensor>& tensors,
                                    Access access,
                                    std::shared_ptr<Region>* pooled,
                                    std::vector<Place>* places) {
  size_t pooled_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    Place& place = (*places)[i];
    if (tensor.bytes == 0 || place.device) continue;
    place.region = registry_.Find(tensor.data, tensor.bytes, access);
    if (place.region != nullptr) {
      place.offset = static_cast<size_t>(
          static_cast<const std::byte*>(tensor.data) - place.region->data());
      if (place.offset % ElementBytes(tensor.dtype) == 0) continue;
      place.region.reset();
    }
    place.offset = pooled_bytes;
    pooled_bytes += Aligned(tensor.bytes);
  }
  if (pooled_bytes == 0) return {};
  Status status = registry_.Acquire(pooled_bytes, access, pooled);
  for (Place& place : *places) {
    if (place.bytes > 0 && !place.device && place.region == nullptr) {
      place.region = *pooled;
    }
  }
  return status;
}

Status SharedMemoryCall::RegisterPlaces(const std::string& path,
                                        const Bounds& bounds,
                                        std::vector<Place>* places) {
  for (Place& place : *places) {
    if (place.bytes == 0) continue;
    std::string handle;
    const auto enlist = [&] {
      return place.device
                 ? registry_.Register(path, *place.device, bounds, &handle)
                 : registry_.Register(path, *place.region, bounds, &handle);
    };
    Status status = enlist();
    if (status.code == StatusCode::kResourceExhausted && registry_.Trim()) {
      status = enlist();
    }
    if (!status.ok()) return status;
    place.range.set_handle(handle);
    place.range.set_offset(place.offset);
    place.range.set_length(place.bytes);
  }
  return {};
}

Status SharedMemoryCall::Share(const std::string& path, const Bounds& bounds) {
  const std::vector<Tensor> inputs = Inputs();
  const std::vector<Tensor> outputs = Outputs();
  Status status = FindPlaces(inputs, Access::kInput, &pooled_inputs_, &inputs_);
  if (status.ok()) {
    status = FindPlaces(outputs, Access::kOutput, &pooled_outputs_, &outputs_);
  }
  if (status.ok()) status = RegisterPlaces(path, bounds, &inputs_);
  if (status.ok()) status = RegisterPlaces(path, bounds, &outputs_);
  generation_ = registry_.generation();
  for (size_t i = 0; i < inputs.size() && status.ok(); ++i) {
    const Place& place = inputs_[i];
    if (place.region == nullptr || place.region != pooled_inputs_) continue;
    std::memcpy(place.data(), inputs[i].data, place.bytes);
  }
  return status;
}

v1::CorrectRequest SharedMemoryCall::Message() const {
  v1::CorrectRequest message = request_.header;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    v1::Tensor* const tensor = message.add_tensors();
    tensor->set_role(request_.inputs[i].role);
    tensor->set_dtype(request_.inputs[i].dtype);
    if (inputs_[i].bytes > 0) {
      *tensor->mutable_shared_memory() = inputs_[i].range;
    }
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i].bytes == 0) continue;
    const v1::TensorRole role = wanted_[i].role;
    v1::Tensor* const tensor = message.add_destinations();
    tensor->set_role(role);
    tensor->set_dtype(OutputDType(role));
    *tensor->mutable_shared_memory() = outputs_[i].range;
  }
  return message;
}

Status SharedMemoryCall::TakeOutputs(Response* response) const {
  for (int i = 0; i < response->message.tensors_size(); ++i) {
    v1::Tensor* const tensor = response->message.mutable_tensors(i);
    const auto wanted = std::find_if(
        wanted_.begin(), wanted_.end(),
        [&](const Output& output) { return output.role == tensor->role(); });
    // Other outputs, and those without bytes, are in the message.
    static const Place kNone;
    const Place& place =
        wanted == wanted_.end() ? kNone : outputs_[wanted - wanted_.begin()];
    const v1::SharedMemoryRange& range = tensor->shared_memory();
    if (range.handle() != place.range.handle() ||
        range.offset() != place.range.offset() ||
        range.length() != place.range.length()) {
      return BrokenAnswer("tensors[" + std::to_string(i) +
                          "] is not where it was to be");
    }
    tensor->clear_shared_memory();
    if (place.bytes == 0 || place.device) continue;
    std::byte* const to = response->outputs[i].data;
    if (to != place.data()) std::memcpy(to, place.data(), place.bytes);
  }
  return {};
}

Outcome SharedMemoryCall::Run(const Endpoint& endpoint, Attempt* attempt,
                              Response* response) {
  const std::string bytes = Message().SerializeAsString();
  const grpc::Slice slice(bytes.data(), bytes.size());
  grpc::ByteBuffer answer;
  Outcome outcome = CallUnary(endpoint, "Correct", grpc::ByteBuffer(&slice, 1),
                              attempt, &answer);
  const bool finished = IsServersLastWord(outcome.status.code);
  if (outcome.status.ok()) {
    outcome.status = ReadUnaryAnswer(request_, answer, response);
  }
  if (outcome.status.ok()) outcome.status = TakeOutputs(response);
  if (finished) {
    if (pooled_inputs_) registry_.Recycle(std::move(pooled_inputs_));
    if (pooled_outputs_) registry_.Recycle(std::move(pooled_outputs_));
  } else if (!registry_.Withdraw(lent_)) {
    outcome.status.message +=
        "; the server may still use the request's device memory";
  }
  return outcome;
}

}  // namespace counterweight::client
