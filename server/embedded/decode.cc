#include "server/embedded/decode.h"

#include <atomic>
#include <cstdio>
#include <random>
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
  const std::string& run = message->labels().run();
  if (const server::DeclaredMethodPtr declared = engine.Declared(run)) {
    std::string warning =
        server::WarnOfOtherMethod(run, *declared, message->method(),
                                  server::ContextOf(*message, *decoded));
    if (!warning.empty()) decoded->warnings.push_back(std::move(warning));
  }
  return {};
}

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

std::vector<std::span<const std::byte>> InputsOf(const cw_request& request) {
  std::vector<std::span<const std::byte>> memory;
  memory.reserve(request.num_tensors);
  for (size_t i = 0; i < request.num_tensors; ++i) {
    memory.emplace_back(static_cast<const std::byte*>(request.tensors[i].data),
                        request.tensors[i].size);
  }
  return memory;
}

Failure ForkedInside() {
  return {CW_FAILED_PRECONDITION,
          "this process was forked while another thread was inside of "
          "libcounterweight, whose locks may stay held; start it with "
          "spawn, or fork between calls",
          {}};
}

}  // namespace counterweight::embedded
