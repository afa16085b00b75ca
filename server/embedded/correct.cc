#include <memory>
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
#include "server/embedded/prepared_call.h"
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

// Gets memory for each output from the caller, or allocates it.
Violations PlaceOutputs(const cw_request& request, const Decoded& decoded,
                        Answer* answer, v1::CorrectResponse* response,
                        cw_batch* batch) {
  Violations violations;
  const auto place = [&](auto* tensor, int64_t bytes) -> std::byte* {
    const auto size = static_cast<size_t>(bytes);
    void* data = nullptr;
    if (size > 0 && request.place != nullptr) {
      data =
          request.place(request.context, tensor->role(), tensor->dtype(), size);
    }
    if (data == nullptr && size > 0 && request.memory == CW_CUDA) {
      violations.push_back({OutputField(tensor->role()),
                            "was given no place, and the library makes no "
                            "memory on a device"});
    } else if (data == nullptr) {
      data = answer->Allocate(size);
    }
    // Nothing is written to an empty output, wherever it lies.
    if (size > 0) batch->outputs[answer->places.size()] = data;
    answer->places.push_back({data, size});
    return static_cast<std::byte*>(data);
  };
  server::AllocateOutputs(decoded.outputs, decoded.layout, place, response);
  return violations;
}

}  // namespace

Failure Correct(const std::shared_ptr<Engine>& engine,
                const cw_request& request, Answer* answer) {
  if (request.memory == CW_CUDA && !engine->computes_on_device()) {
    return {CW_INVALID_ARGUMENT,
            "request.memory is CW_CUDA, but the handle computes on the CPU; "
            "open one with backend \"cuda\"",
            {}};
  }
  const Cancellation cancellation(request.stop, request.timeout_seconds);
  StageClock clock;
  std::unique_ptr<PreparedCall> call;
  Reading reading;
  Failure failure = PreparedCall::Make(engine, request, &call, &reading);
  if (!failure.ok()) return failure;
  const Decoded& decoded = *reading.decoded;
  v1::CorrectResponse response;
  cw_batch batch{};
  batch.memory = request.memory;
  batch.stream = request.stream;
  const Violations unplaced =
      PlaceOutputs(request, decoded, answer, &response, &batch);
  if (!unplaced.empty()) return InvalidArgument(unplaced);
  response.mutable_timing()->set_decode_seconds(clock.Next());
  // Drift is published by step.
  reading.has_partial_sums = decoded.outputs.partial_sums;
  kernels::CorrectResult result;
  failure = call->Run(batch, reading, cancellation, &result);
  if (!failure.ok()) return failure;
  response.mutable_timing()->set_compute_seconds(clock.Next());
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  const Violations violations = server::Encode(decoded, result, &response);
  if (!violations.empty()) return InvalidArgument(violations);
  const v1::CorrectRequest& message = call->message();
  response.set_request_id(message.request_id().empty() ? MakeRequestId()
                                                       : message.request_id());
  if (!decoded.omits_metrics) {
    answer->publication = PublicationOf(message, response, decoded, result);
    if (answer->publication->part || answer->publication->facts) {
      answer->method = message.method();
    }
  }
  response.set_backend(call->backend());
  response.mutable_timing()->set_encode_seconds(clock.Next());
  return Write(response, request.format, &answer->text);
}

}  // namespace counterweight::embedded
