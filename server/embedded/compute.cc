#include "server/embedded/compute.h"

#include <optional>
#include <string_view>
#include <utility>

#include "server/embedded/placement.h"
#include "server/engine/correction_run.h"
#include "server/engine/names.h"

namespace counterweight::embedded {
namespace {

using server::Concat;
using server::Decoded;
using server::Violations;

}  // namespace

Failure ToFailure(const kernels::CorrectResult& result, const Decoded& decoded,
                  const Cancellation& cancellation) {
  switch (result.status) {
    case kernels::CorrectStatus::kOk:
      return {};
    case kernels::CorrectStatus::kNonFinite:
      return InvalidArgument({server::ToViolation(result.non_finite)});
    case kernels::CorrectStatus::kBadVersion:
      return InvalidArgument({server::ToViolation(result.bad_version)});
    case kernels::CorrectStatus::kBadMask:
      return InvalidArgument(
          {server::ToViolation(result.bad_mask, decoded.tensors)});
    case kernels::CorrectStatus::kStopped: {
      Failure failure = cancellation.Check();
      // The caller may have reset its stop since the backend read it.
      if (failure.ok()) failure.code = CW_CANCELLED;
      return failure;
    }
    case kernels::CorrectStatus::kDeviceFull:
      return {CW_RESOURCE_EXHAUSTED,
              "the device has no memory for this batch; send a smaller batch",
              {}};
    case kernels::CorrectStatus::kDeviceError:
    case kernels::CorrectStatus::kDeviceLost:
      break;
  }
  return {CW_INTERNAL,
          Concat("device ", result.device, ": ", result.device_error),
          {}};
}

double StageClock::Next() {
  const Clock::time_point now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(start_, now))
      .count();
}

Violations CheckPlaces(const kernels::Corrector& corrector, int32_t memory,
                       Memory inputs) {
  Violations violations;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].empty()) continue;
    const std::string_view wrong =
        WrongPlace(corrector, memory, inputs[i].data());
    if (wrong.empty()) continue;
    violations.push_back(
        {Concat("tensors[", i, "].data"), Concat("lies ", wrong)});
  }
  return violations;
}

Violations CheckInputs(const server::Tensors& tensors, Memory inputs) {
  Violations violations;
  const auto& wanted = tensors.inputs;
  if (inputs.size() > wanted.size()) {
    violations.push_back(
        {"tensors", Concat("has ", wanted.size(), " entries, but bytes of ",
                           inputs.size(), " were given")});
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (reinterpret_cast<uintptr_t>(inputs[i].data()) %
            static_cast<uintptr_t>(wanted[i].element_size) !=
        0) {
      violations.push_back(
          {Concat("tensors[", i, "].data"),
           "lies at an address that is not a multiple of its element"});
    }
  }
  return violations;
}

Failure Compute(kernels::Corrector* corrector, const Decoded& decoded,
                const kernels::Batch& batch,
                const kernels::PolicyVersions& versions,
                const kernels::Outputs& outputs, const Placed& placed,
                const Cancellation& cancellation,
                kernels::CorrectResult* result) {
  const kernels::StopRequest stop = [&cancellation] {
    return cancellation.Code() != CW_OK;
  };
  if (!versions.came && !placed.is_on_device() && !decoded.HasTokenMetrics() &&
      !decoded.HasFirstPass() && !decoded.method.last_rule_spares_weights) {
    *result = corrector->CorrectUnlessStopped(decoded.method.spec, batch,
                                              outputs, stop);
  } else {
    *result =
        server::BeginCorrection(
            corrector, decoded, batch, versions, outputs, stop,
            placed.is_on_device() ? std::optional(placed.stream) : std::nullopt)
            ->Finish();
  }
  return ToFailure(*result, decoded, cancellation);
}

}  // namespace counterweight::embedded
