// Staleness of a batch's tokens and the drift by staleness, where the walk has
// not measured it (Batch::versions): a pass of its own over host memory, with
// the walk's bits.
#ifndef COUNTERWEIGHT_KERNELS_STALENESS_H_
#define COUNTERWEIGHT_KERNELS_STALENESS_H_

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/corrector.h"
#include "kernels/policy_versions.h"
#include "kernels/spec.h"

namespace counterweight::kernels {

// The inputs that lie in memory of a device.
struct DeviceInputs {
  uint32_t roles = 0;  // bit InputRole
  bool versions = false;
  bool mask = false;
};

// Bytes of host memory that MeasureStaleness allocates for copies from a
// device.
int64_t StalenessScratchBytes(const CorrectionSpec& spec,
                              const DeviceInputs& on_device);

// Fills result->sums.staleness; on failure sets result->status to kBadVersion,
// kStopped, kDeviceError or kDeviceLost. Checks versions alone if the spec
// wants no metrics. `corrector` copies from its devices; `stop` may be empty,
// and is called between blocks of positions. REQUIRES: result is that of the
// correction, and kOk.
void MeasureStaleness(const CorrectionSpec& spec, const Batch& batch,
                      const PolicyVersions& versions,
                      const DeviceInputs& on_device, Corrector* corrector,
                      const StopRequest& stop, CorrectResult* result);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_STALENESS_H_
