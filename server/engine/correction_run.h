// One request's computation: the correction, then the drift by staleness.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CORRECTION_RUN_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CORRECTION_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/corrector.h"
#include "kernels/staleness.h"
#include "server/engine/codec.h"

namespace counterweight::server {

// Corrector::Begin, or BeginInStream where a stream is given: not with
// Decoded::HasFirstPass(). If the request
// has versions, Finish also fills BatchSums::staleness, on its own thread, and
// CorrectResult::token_metrics if Decoded::HasTokenMetrics().
// `versions` are VersionsOf() of `decoded`, or of its placed inputs. `decoded`
// must outlive the run.
std::unique_ptr<kernels::CorrectRun> BeginCorrection(
    kernels::Corrector* corrector, const Decoded& decoded,
    const kernels::Batch& batch, const kernels::PolicyVersions& versions,
    const kernels::Outputs& outputs, kernels::StopRequest stop,
    std::optional<void*> stream = std::nullopt);

// Host memory that token metrics, a filter of rows and derived tensors take
// beside the request's tensors and outputs, in bytes.
int64_t PassBytes(const Decoded& decoded);

// Host memory that versions take beside tensors, in bytes: spans, and copies
// of blocks of device memory.
int64_t VersionBytes(const Decoded& decoded);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CORRECTION_RUN_H_
