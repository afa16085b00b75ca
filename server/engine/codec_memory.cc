#include "server/engine/codec_memory.h"

#include <memory>
#include <utility>

#include "server/engine/names.h"

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
        {field + ".length", Concat("is ", range.length(), "; the tensor has ",
                                   need.bytes, " bytes")});
  }
  if (range.offset() % static_cast<uint64_t>(need.element_size) != 0) {
    violations.push_back(
        {field + ".offset", Concat("must be a multiple of the element's ",
                                   need.element_size, " bytes")});
  }
  if (!Contains(region->size(), range.offset(), range.length())) {
    violations.push_back(
        {field + ".offset",
         Concat(range.offset(), " and ", range.length(),
                " bytes from there are not inside the region's ",
                region->size(), " bytes")});
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
