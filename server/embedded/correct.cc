#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/embedded/calls.h"
#include "server/embedded/cancellation.h"
#include "server/embedded/compute.h"
#include "server/embedded/decode.h"
#include "server/embedded/fork_guard.h"
#include "server/embedded/message.h"
#include "server/embedded/placement.h"
#include "server/engine/codec.h"
#include "server/engine/codec_publication.h"

namespace counterweight::embedded {
namespace {

using server::Decoded;
using server::Violations;

// Returns the bits for a batch of a run, which may declare a method.
std::optional<uint64_t> FactsToPublish(const v1::CorrectRequest& request,
                                       const Decoded& decoded) {
  if (request.labels().run().empty()) return std::nullopt;
  return server::FactBitsOf(request, server::FactsOf(request, decoded.tensors));
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
                                     decoded.method.rule_names, result.sums),
          .part = server::PartOf(request, decoded, result.partial),
          .facts = FactsToPublish(request, decoded)};
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
  const Cancellation cancellation(request.stop, request.timeout_seconds);
  const std::vector<std::span<const std::byte>> memory = InputsOf(request);
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
      const Violations violations =
          CheckPlaces(*corrector, request.memory, memory);
      if (!violations.empty()) return InvalidArgument(violations);
    }
    failure = Decode(*engine, request,
                     {.memory = &memory, .is_on_device = is_on_device},
                     &message, &decoded);
    if (!failure.ok()) return failure;
    const Violations violations = CheckInputs(decoded.tensors, memory);
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
                              server::ElementSize(tensor->dtype()), bytes);
      },
      &response);
  if (!placement.violations().empty()) {
    return InvalidArgument(placement.violations());
  }
  kernels::CorrectResult result;
  Failure failure = Compute(
      corrector, decoded, server::BatchOf(decoded), server::VersionsOf(decoded),
      outputs, {request.memory, request.stream}, cancellation, &result);
  if (!failure.ok()) return failure;
  response.mutable_timing()->set_compute_seconds(clock.Next());
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  const Violations violations = server::Encode(decoded, result, &response);
  if (!violations.empty()) return InvalidArgument(violations);
  response.set_request_id(message.request_id().empty() ? MakeRequestId()
                                                       : message.request_id());
  if (!decoded.omits_metrics) {
    answer->publication = PublicationOf(message, response, decoded, result);
    if (answer->publication->part || answer->publication->facts) {
      answer->method = message.method();
    }
  }
  response.set_backend(corrector->Info().name);
  response.mutable_timing()->set_encode_seconds(clock.Next());
  return Write(response, request.format, &answer->text);
}

}  // namespace counterweight::embedded
