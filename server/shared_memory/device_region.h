// Opens a client's device memory as a region.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_DEVICE_REGION_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_DEVICE_REGION_H_

#include <memory>
#include <span>

#include "kernels/corrector.h"
#include "server/engine/region.h"
#include "server/shared_memory/control.h"
#include "server/shared_memory/mapped_region.h"

namespace counterweight::server {

// Opens the first `request.size` bytes of an allocation of another process, or,
// if there are descriptors in `parts`, an equal share of each of theirs.
// *backend, which may be null, must outlive the region. Otherwise returns null
// with *refusal: FAILED_PRECONDITION if the backend computes on no device,
// INVALID_ARGUMENT for an invalid request; nothing stays open.
std::shared_ptr<const Region> OpenDeviceRegion(
    const ControlRequest& request, std::span<const int> parts,
    kernels::Corrector* backend, const std::shared_ptr<RegionCounts>& counts,
    Refusal* refusal);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_DEVICE_REGION_H_
