#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "server/embedded/calls.h"
#include "server/embedded/cancellation.h"
#include "server/embedded/decode.h"
#include "server/embedded/fork_guard.h"
#include "server/embedded/message.h"
#include "server/embedded/placement.h"
#include "server/engine/codec.h"
#include "server/engine/codec_publication.h"
#include "server/engine/correction_run.h"
#include "server/engine/names.h"

namespace counterweight::embedded {
namespace {

using server::Concat;
using server::Decoded;
using server::Violations;

using Clock = std::chrono::steady_clock;
using Memory = std::vector<std::span<const std::byte>>;

// Makes an id in a server's format for a request that has none.
std::string MakeRequestId() {
  static std::atomic<uint64_t> next = 0;
  std::random_device device;
  char text[64];
  const uint64_t prefix = (uint64_t{device()} << 32) | device();
  std::snprintf(text, sizeof(text), "%016llx-%llu",
                static_cast<unsigned long long>(prefix),
                static_cast<unsigned long long>(++next));
  return text;
}

// Times the stages of a call.
class StageClock {
 public:
  // Returns the seconds since the last call.
  double Next() {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(start_, now))
        .count();
  }

 private:
  Clock::time_point start_ = Clock::now();
};

Memory InputsOf(const cw_request& request) {
  Memory memory;
  for (size_t i = 0; i < request.num_tensors; ++i) {
    memory.emplace_back(static_cast<const std::byte*>(request.tensors[i].data),
                        request.tensors[i].size);
  }
  return memory;
}

// Finds addresses that nothing may read. Of a backend on the CPU, which knows
// no devices, all are memory of the host.
Violations CheckPlaces(const kernels::Corrector& corrector,
                       const cw_request& request, const Memory& memory) {
  Violations violations;
  for (size_t i = 0; i < memory.size(); ++i) {
    if (memory[i].empty()) continue;
    const std::string_view wrong =
        WrongPlace(corrector, request.memory, memory[i].data());
    if (wrong.empty()) continue;
    violations.push_back(
        {Concat("tensors[", i, "].data"), Concat("lies ", wrong)});
  }
  return violations;
}

// Finds the violations that the codec cannot see.
Violations CheckInputs(const Decoded& decoded, const Memory& memory) {
  Violations violations;
  const auto& inputs = decoded.tensors.inputs;
  if (memory.size() > inputs.size()) {
    violations.push_back(
        {"tensors", Concat("has ", inputs.size(), " entries, but bytes of ",
                           memory.size(), " were given")});
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (reinterpret_cast<uintptr_t>(memory[i].data()) %
            static_cast<uintptr_t>(inputs[i].element_size) !=
        0) {
      violations.push_back(
          {Concat("tensors[", i, "].data"),
           "lies at an address that is not a multiple of its element"});
    }
  }
  return violations;
}

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

server::Publication PublicationOf(const v1::CorrectRequest& request,
                                  const v1::CorrectResponse& response,
                                  const Decoded& decoded,
                                  const kernels::CorrectResult& result) {
  const v1::Labels& labels = request.labels();
  return {.request_id = response.request_id(),
          .run = labels.run(),
          .replica = labels.replica(),
          .policy_version = labels.has_policy_version()
                                ? std::optional(labels.policy_version())
                                : std::nullopt,
          .batch = server::Published(decoded.method.spec,
                                     decoded.method.rule_names, result.sums)};
}

}  // namespace

Failure Correct(Engine* engine, const cw_request& request, Answer* answer) {
  const bool is_on_device = request.memory == CW_CUDA;
  if (is_on_device && !engine->computes_on_device()) {
    return {CW_INVALID_ARGUMENT,
            "request.memory is CW_CUDA, but the handle computes on the CPU; "
            "open one with backend \"cuda\"",
            {}};
  }
  const Cancellation cancellation(request);
  const Memory memory = InputsOf(request);
  StageClock clock;
  v1::CorrectRequest message;
  v1::CorrectResponse response;
  Decoded decoded;
  kernels::Corrector* corrector = nullptr;
  kernels::Outputs outputs;
  {
    const ForkGuard guard;
    if (!guard.is_safe()) return ForkedInside();
    Failure failure;
    if (engine->computes_on_device()) {
      failure = engine->Use(&corrector);
      if (!failure.ok()) return failure;
      const Violations violations = CheckPlaces(*corrector, request, memory);
      if (!violations.empty()) return InvalidArgument(violations);
    }
    failure = Decode(*engine, request,
                     {.memory = &memory, .is_on_device = is_on_device},
                     &message, &decoded);
    if (!failure.ok()) return failure;
    const Violations violations = CheckInputs(decoded, memory);
    if (!violations.empty()) return InvalidArgument(violations);
    failure = engine->Use(&corrector);
    if (!failure.ok()) return failure;
  }
  response.mutable_timing()->set_decode_seconds(clock.Next());
  Placement placement(request, memory, *corrector, answer);
  outputs = server::AllocateOutputs(
      decoded.outputs, decoded.layout,
      [&](auto* tensor, int64_t bytes) {
        return placement.Next(tensor->role(), tensor->dtype(),
                              server::RoleName(tensor->role()),
                              server::ElementSize(tensor->dtype()), bytes);
      },
      &response);
  if (!placement.violations().empty()) {
    return InvalidArgument(placement.violations());
  }
  const kernels::CorrectResult result =
      server::BeginCorrection(
          corrector, decoded, server::BatchOf(decoded),
          server::VersionsOf(decoded), outputs,
          [&cancellation] { return cancellation.Code() != CW_OK; },
          is_on_device ? std::optional(request.stream) : std::nullopt)
          ->Finish();
  Failure failure = ToFailure(result, decoded, cancellation);
  if (!failure.ok()) return failure;
  response.mutable_timing()->set_compute_seconds(clock.Next());
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  const Violations violations = server::Encode(decoded, result.sums, &response);
  if (!violations.empty()) return InvalidArgument(violations);
  response.set_request_id(message.request_id().empty() ? MakeRequestId()
                                                       : message.request_id());
  if (!decoded.omits_metrics) {
    answer->publication = PublicationOf(message, response, decoded, result);
  }
  response.set_backend(corrector->Info().name);
  response.mutable_timing()->set_encode_seconds(clock.Next());
  return Write(response, request.format, &answer->text);
}

}  // namespace counterweight::embedded
