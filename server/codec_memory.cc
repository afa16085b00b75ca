#include "server/codec_memory.h"

#include <memory>
#include <utility>

#include "spdlog/fmt/fmt.h"

namespace counterweight::server {

std::byte* FindRange(const v1::SharedMemoryRange& range, const RangeNeed& need,
                     const Regions* regions, const std::string& field,
                     DecodedRequest* decoded, Violations* violations) {
  if (regions == nullptr) {
    violations->push_back(
        {field,
         "there is no shared memory on this connection: the server must be "
         "started with --shared_memory_socket and called over a Unix socket"});
    return nullptr;
  }
  std::shared_ptr<const Region> region = regions->Find(range.handle());
  if (region == nullptr) {
    violations->push_back(
        {field + ".handle", "no open connection registered such a region"});
    return nullptr;
  }
  const size_t before = violations->size();
  if (region->access() != need.access) {
    violations->push_back(
        {field + ".handle", need.access == RegionAccess::kRead
                                ? "is of a region for writing; inputs are read"
                                : "is of a region for reading; a destination "
                                  "is written"});
  }
  if (range.length() != static_cast<uint64_t>(need.bytes)) {
    violations->push_back(
        {field + ".length", fmt::format("is {}; the tensor has {} bytes",
                                        range.length(), need.bytes)});
  }
  if (range.offset() % static_cast<uint64_t>(need.element_size) != 0) {
    violations->push_back(
        {field + ".offset", fmt::format("must be a multiple of the element's "
                                        "{} bytes",
                                        need.element_size)});
  }
  if (!Contains(region->size(), range.offset(), range.length())) {
    violations->push_back(
        {field + ".offset",
         fmt::format("{} and {} bytes from there are not inside the region's "
                     "{} bytes",
                     range.offset(), range.length(), region->size())});
  }
  if (violations->size() > before) return nullptr;
  std::byte* const data = region->data() + range.offset();
  decoded->regions.push_back(std::move(region));
  return data;
}

}  // namespace counterweight::server
