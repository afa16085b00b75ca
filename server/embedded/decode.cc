#include "server/embedded/decode.h"

#include <string_view>
#include <utility>

#include "server/embedded/message.h"

namespace counterweight::embedded {

Failure Decode(const Engine& engine, const cw_request& request,
               const server::PayloadSource& source, v1::CorrectRequest* message,
               server::Decoded* decoded) {
  const std::string_view text(static_cast<const char*>(request.message.data),
                              request.message.size);
  Failure failure =
      ReadRequest(text, request.format, engine.limits().max_sequences, message);
  if (!failure.ok()) return failure;
  server::Result<server::Decoded> result =
      server::Decode(*message, engine.limits(), source);
  if (!result.ok()) return InvalidArgument(result.violations);
  *decoded = std::move(result.value);
  return {};
}

Failure ForkedInside() {
  return {CW_FAILED_PRECONDITION,
          "this process was forked while another thread was inside of "
          "libcounterweight, whose locks may stay held; start it with "
          "spawn, or fork between calls",
          {}};
}

}  // namespace counterweight::embedded
