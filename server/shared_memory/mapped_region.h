// Maps a client's memfd as a region.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_MAPPED_REGION_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_MAPPED_REGION_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "kernels/corrector.h"
#include "server/base/file_descriptor.h"
#include "server/call/admission.h"
#include "server/engine/region.h"
#include "server/shared_memory/control.h"

namespace counterweight::server {

// Counts over all regions, including those that only a request still holds.
struct RegionCounts {
  std::atomic<int64_t> regions = 0;
  std::atomic<int64_t> bytes = 0;         // on the host
  std::atomic<int64_t> device_bytes = 0;  // on devices
};

// Checks and maps a client's memfd of `size` bytes. Reserves its pages in
// *admission and lets *backend, which may be null, pin them; both must outlive
// the region. Otherwise returns null with *refusal: INVALID_ARGUMENT,
// RESOURCE_EXHAUSTED or, if admission is closed, UNAVAILABLE.
std::shared_ptr<const Region> MapRegion(
    const FileDescriptor& memfd, uint64_t size, RegionAccess access,
    Admission* admission, kernels::Corrector* backend,
    const std::shared_ptr<RegionCounts>& counts, Refusal* refusal);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_MAPPED_REGION_H_
