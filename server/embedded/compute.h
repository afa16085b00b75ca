// The part of a call between reading and answering, for one-off and prepared
// calls.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_COMPUTE_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_COMPUTE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/corrector.h"
#include "server/embedded/cancellation.h"
#include "server/embedded/failure.h"
#include "server/engine/codec.h"

namespace counterweight::embedded {

using Memory = std::span<const std::span<const std::byte>>;

// Times the stages of a call.
class StageClock {
 public:
  // Returns the seconds since the last call.
  double Next();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// The memory of a call's tensors and outputs.
struct Placed {
  int32_t memory = CW_HOST;
  void* stream = nullptr;  // of CW_CUDA

  bool is_on_device() const { return memory == CW_CUDA; }
};

// Finds addresses that nothing may read. Of a backend on the CPU, which knows
// no devices, all are memory of the host.
server::Violations CheckPlaces(const kernels::Corrector& corrector,
                               int32_t memory, Memory inputs);

// Finds the violations that the codec cannot see.
server::Violations CheckInputs(const server::Tensors& tensors, Memory inputs);

// Corrects a batch; fills *result. `batch` and `versions` are those of
// `decoded`, or another batch's of its method.
Failure Compute(kernels::Corrector* corrector, const server::Decoded& decoded,
                const kernels::Batch& batch,
                const kernels::PolicyVersions& versions,
                const kernels::Outputs& outputs, const Placed& placed,
                const Cancellation& cancellation,
                kernels::CorrectResult* result);

// The error of a result, if its status is one.
Failure ToFailure(const kernels::CorrectResult& result,
                  const server::Decoded& decoded,
                  const Cancellation& cancellation);

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_COMPUTE_H_
