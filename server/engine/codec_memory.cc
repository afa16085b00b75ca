#include "server/engine/codec_memory.h"

#include <memory>
#include <utility>

#include "spdlog/fmt/fmt.h"

namespace counterweight::server {

Result<SharedRange> FindRange(const v1::SharedMemoryRange& range,
                              const RangeNeed& need, const Regions* regions,
                              const std::optional<kernels::DeviceUuid>& device,
                              const std::string& field) {
  Result<SharedRange> result;
  Violations& violations = result.violations;
  if (regions == nullptr) {
    violations.push_back(
        {field,
         "there is no shared memory on this connection: the server must be "
         "started with --shared_memory_socket and called over a Unix socket"});
    return result;
  }
  std::shared_ptr<const Region> region = regions->Find(range.handle());
  if (region == nullptr) {
    violations.push_back(
        {field + ".handle", "no open connection registered such a region"});
    return result;
  }
  if (region->access() != need.access) {
    violations.push_back(
        {field + ".handle", need.access == RegionAccess::kRead
                                ? "is of a region for writing; inputs are read"
                                : "is of a region for reading; a destination "
                                  "is written"});
  }
  if (range.length() != static_cast<uint64_t>(need.bytes)) {
    violations.push_back(
        {field + ".length", fmt::format("is {}; the tensor has {} bytes",
                                        range.length(), need.bytes)});
  }
  if (range.offset() % static_cast<uint64_t>(need.element_size) != 0) {
    violations.push_back(
        {field + ".offset", fmt::format("must be a multiple of the element's "
                                        "{} bytes",
                                        need.element_size)});
  }
  if (!Contains(region->size(), range.offset(), range.length())) {
    violations.push_back(
        {field + ".offset",
         fmt::format("{} and {} bytes from there are not inside the region's "
                     "{} bytes",
                     range.offset(), range.length(), region->size())});
  }
  if (device && region->device() && *device != *region->device()) {
    violations.push_back(
        {field + ".handle",
         "is of a region on another device than the tensors before; a batch "
         "is computed on one"});
  }
  if (!result.ok()) return result;
  std::byte* const data = region->data() + range.offset();
  result.value = {data, std::move(region)};
  return result;
}

}  // namespace counterweight::server
