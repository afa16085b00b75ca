#include "client/cpp/bench/memory_copy.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace counterweight::bench {

client::Status MemoryCopy::Make(const std::vector<client::Request>& requests) {
  for (const client::Request& request : requests) {
    size_t up = 0;
    size_t down = 0;
    for (const client::Input& input : request.inputs) up += input.bytes;
    for (const client::Output& output : request.outputs) down += output.bytes;
    std::shared_ptr<client::Region> region;
    client::Status status = client::Region::Create(
        std::max(up, down), client::Access::kOutput, &region);
    if (!status.ok()) return status;
    regions_[&request] = client::SharedBuffer(region);
  }
  return {};
}

client::Status MemoryCopy::Run(const client::Request& request,
                               client::Response* response) const {
  response->transport = client::Transport::kSharedMemory;
  response->input_bytes = 0;
  response->output_bytes = 0;
  std::byte* const region = regions_.at(&request).data();
  for (const client::Input& input : request.inputs) {
    std::memcpy(region + response->input_bytes, input.data, input.bytes);
    response->input_bytes += input.bytes;
  }
  for (const client::Output& output : request.outputs) {
    std::memcpy(output.data, region + response->output_bytes, output.bytes);
    response->output_bytes += output.bytes;
  }
  return {};
}

}  // namespace counterweight::bench
