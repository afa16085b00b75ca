#include <span>
#include <vector>

#include "server/embedded/calls.h"
#include "server/embedded/cancellation.h"
#include "server/embedded/compute.h"
#include "server/embedded/decode.h"
#include "server/embedded/fork_guard.h"
#include "server/embedded/message.h"
#include "server/engine/codec_diagnosis.h"

namespace counterweight::embedded {

Failure Diagnose(Engine* engine, const cw_request& request, Answer* answer) {
  if (request.memory != CW_HOST) {
    return {CW_INVALID_ARGUMENT,
            "request.memory must be CW_HOST to be examined; copy the tensors "
            "from the device",
            {}};
  }
  const Cancellation cancellation(request.stop, request.timeout_seconds);
  const std::vector<std::span<const std::byte>> memory = InputsOf(request);
  v1::CorrectRequest message;
  server::Result<server::Patient> patient;
  {
    const ForkGuard guard;
    if (!guard.is_safe()) return ForkedInside();
    Failure failure = ReadRequest(
        {static_cast<const char*>(request.message.data), request.message.size},
        request.format, engine->limits().max_sequences, &message);
    if (!failure.ok()) return failure;
    patient =
        server::DecodePatient(message, engine->limits(), {.memory = &memory});
    if (!patient.ok()) return InvalidArgument(patient.violations);
    const server::Violations violations =
        CheckInputs(patient.value.tensors, memory);
    if (!violations.empty()) return InvalidArgument(violations);
    failure = cancellation.Check();
    if (!failure.ok()) return failure;
  }
  v1::DiagnoseResponse response;
  // The mask lies in memory, and is checked.
  static_cast<void>(server::Diagnose(
      patient.value, [&] { return !cancellation.Check().ok(); }, &response));
  Failure failure = cancellation.Check();
  if (!failure.ok()) return failure;
  response.set_request_id(message.request_id().empty() ? MakeRequestId()
                                                       : message.request_id());
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  return Write(response, request.format, &answer->text);
}

}  // namespace counterweight::embedded
