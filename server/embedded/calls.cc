#include "server/embedded/calls.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "server/embedded/decode.h"
#include "server/embedded/fork_guard.h"
#include "server/embedded/message.h"
#include "server/engine/codec.h"
#include "server/engine/codec_declaration.h"
#include "server/engine/codec_group_baseline.h"
#include "server/engine/codec_partial.h"
#include "server/engine/codec_publication.h"
#include "server/engine/codec_server_info.h"

namespace counterweight::embedded {

using server::Decoded;

Failure Validate(Engine* engine, const cw_request& request, Answer* answer) {
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  v1::CorrectRequest message;
  Decoded decoded;
  Failure failure =
      Decode(*engine, request, {.is_stream = true}, &message, &decoded);
  if (!failure.ok()) return failure;
  v1::CorrectResponse response;
  server::AllocateOutputs(
      decoded.outputs, decoded.layout,
      [](auto* /*tensor*/, int64_t /*bytes*/) -> std::byte* { return nullptr; },
      &response);
  response.set_request_id(message.request_id());
  response.set_numerics_version(kernels::kNumericsVersion);
  response.mutable_warnings()->Add(decoded.warnings.begin(),
                                   decoded.warnings.end());
  return Write(response, request.format, &answer->text);
}

Failure Sums(int32_t format, Answer* answer) {
  answer->sums.clear();
  if (!answer->publication) return {};
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  return Write(server::WritePublication(*answer->publication, answer->method),
               format, &answer->sums);
}

Failure Merge(cw_bytes request, int32_t format,
              std::span<const cw_partial> parts, Answer* answer) {
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  v1::MergeSumsRequest message;
  Failure failure = ReadMerge(
      {static_cast<const char*>(request.data), request.size}, format, &message);
  if (!failure.ok()) return failure;
  for (const cw_partial& part : parts) {
    v1::PartialSums& added = *message.add_parts();
    added.mutable_sums()->Add(part.sums, part.sums + part.num_sums);
    added.mutable_maxima()->Add(part.maxima, part.maxima + part.num_maxima);
  }
  v1::MergeSumsResponse response;
  const server::Violations violations = server::MergeSums(message, &response);
  if (!violations.empty()) return InvalidArgument(violations);
  if (message.has_labels() || !message.request_id().empty()) {
    server::Result<server::Publication> publication =
        server::PublicationOf(message, response.sums());
    if (!publication.ok()) return InvalidArgument(publication.violations);
    answer->publication = std::move(publication.value);
    answer->method = message.method();
  }
  if (parts.empty()) return Write(response, format, &answer->text);
  const v1::PartialSums sums = std::move(*response.mutable_sums());
  response.clear_sums();
  failure = Write(response, format, &answer->text);
  if (!failure.ok()) return failure;
  // All parts have these lengths.
  std::copy(sums.sums().begin(), sums.sums().end(), parts[0].sums);
  std::copy(sums.maxima().begin(), sums.maxima().end(), parts[0].maxima);
  return {};
}

Failure DeclareRun(Engine* engine, cw_bytes request, int32_t format,
                   Answer* answer) {
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  v1::DeclareRunRequest message;
  Failure failure = ReadDeclaration(
      {static_cast<const char*>(request.data), request.size}, format, &message);
  if (!failure.ok()) return failure;
  const server::Result<server::Declaration> read =
      server::ReadDeclaration(message);
  if (!read.ok()) return InvalidArgument(read.violations);
  const v1::DeclareRunResponse response =
      server::AnswerTo(read.value, engine->Declare(read.value).get());
  return Write(response, format, &answer->text);
}

Failure GroupAdvantages(cw_bytes request, int32_t format, Answer* answer) {
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  v1::GroupAdvantagesRequest message;
  Failure failure = ReadGroups(
      {static_cast<const char*>(request.data), request.size}, format, &message);
  if (!failure.ok()) return failure;
  v1::GroupAdvantagesResponse response;
  const server::Violations violations =
      server::GroupAdvantages(message, &response);
  if (!violations.empty()) return InvalidArgument(violations);
  return Write(response, format, &answer->text);
}

Failure ListMethods(int32_t format, Answer* answer) {
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  v1::ListMethodsResponse response;
  server::EncodeMethods(&response);
  return Write(response, format, &answer->text);
}

Failure ServerInfo(Engine* engine, int32_t format, Answer* answer) {
  const ForkGuard guard;
  if (!guard.is_safe()) return ForkedInside();
  kernels::BackendInfo info;
  Failure failure = engine->Info(&info);
  if (!failure.ok()) return failure;
  v1::GetServerInfoResponse response;
  server::EncodeServerInfo(info, engine->limits(), &response);
  response.set_version(COUNTERWEIGHT_VERSION);
  response.set_revision(COUNTERWEIGHT_REVISION);
  return Write(response, format, &answer->text);
}

}  // namespace counterweight::embedded
