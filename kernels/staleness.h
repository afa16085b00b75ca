// Staleness of a batch's tokens and the drift by staleness. A pass of its own
// over host memory, after the correction: the same on every backend.
#ifndef COUNTERWEIGHT_KERNELS_STALENESS_H_
#define COUNTERWEIGHT_KERNELS_STALENESS_H_

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/corrector.h"
#include "kernels/spec.h"

namespace counterweight::kernels {

// Positions [start, end) of row `sequence`, sampled by one version.
struct VersionSpan {
  int64_t sequence;
  int64_t start;
  int64_t end;
  int64_t version;  // >= 0
};

// The versions of the policy that sampled a batch, by position or by span.
struct PolicyVersions {
  // Version of the policy being trained, >= 0.
  int64_t trained = 0;
  // [num_positions] int32 of any alignment, -1: unknown. Null: spans have them.
  const void* of_positions = nullptr;
  // [num_spans], ascending by sequence and start, without overlap; positions
  // without a span are unknown.
  const VersionSpan* spans = nullptr;
  int64_t num_spans = 0;
  bool came = false;
};

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
