#include "tests/fuzz/laws.h"

#include <cstring>
#include <memory>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kernels/corrector.h"
#include "server/call/status.h"
#include "server/engine/correction_run.h"
#include "server/log/library_log.h"
#include "spdlog/sinks/null_sink.h"
#include "tests/fuzz/input.h"

namespace counterweight::fuzz {
namespace {

kernels::Corrector& Corrector() {
  static kernels::Corrector& corrector =
      *kernels::MakeCpuCorrector(1, kernels::CpuIsa::kGeneric).release();
  return corrector;
}

// Expects four zero bytes at each position with mask 0.
void ExpectZeroWhereMasked(const server::Decoded& decoded,
                           const kernels::Batch& batch, const void* values,
                           const char* law) {
  if (values == nullptr) return;
  const auto* bytes = static_cast<const char*>(values);
  for (int64_t i = 0; i < decoded.layout.num_positions; ++i) {
    float value = 0.0F;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(value)),
                sizeof(value));
    Expect(batch.response_mask[i] != 0 || value == 0.0F, law);
  }
}

void ExpectRoles(const server::Decoded& decoded,
                 const v1::CorrectResponse& response) {
  Expect(static_cast<size_t>(response.tensors_size()) ==
             decoded.outputs.roles.size(),
         "an answer has the outputs asked for");
  for (int i = 0; i < response.tensors_size(); ++i) {
    Expect(response.tensors(i).role() ==
               decoded.outputs.roles[static_cast<size_t>(i)],
           "outputs come in the order asked");
  }
}

}  // namespace

void ExpectReadable(const server::Violations& violations) {
  if (violations.empty()) return;
  for (const server::Violation& violation : violations) {
    Expect(!violation.field.empty(), "a violation names a field",
           violation.description);
    Expect(!violation.description.empty(), "a violation says what is wrong",
           violation.field);
  }
  const grpc::Status status = server::InvalidArgument(violations);
  Expect(!status.error_message().empty() &&
             status.error_message().size() <= server::kMaxMessageBytes,
         "a message has 1 to 1000 bytes");
  Expect(status.error_details().size() <= server::kMaxDetailsBytes,
         "details fit into trailers");
  google::rpc::Status details;
  google::rpc::BadRequest bad_request;
  Expect(details.ParseFromString(status.error_details()) &&
             details.details_size() == 1 &&
             details.details(0).UnpackTo(&bad_request) &&
             bad_request.field_violations_size() > 0,
         "clients can parse the details", status.error_message());
}

void ExpectValid(const kernels::CorrectionSpec& spec) {
  const auto violations = kernels::Validate(spec);
  if (violations.empty()) return;
  Expect(false, "an accepted method is one that kernels take",
         violations.front().reason);
}

void ExpectComputes(const server::Decoded& decoded, const kernels::Batch& batch,
                    v1::CorrectResponse* response) {
  const kernels::Outputs outputs = server::AllocateOutputs(
      decoded.outputs, decoded.layout, server::PlaceInMessage, response);
  ExpectRoles(decoded, *response);
  const kernels::CorrectResult result =
      server::BeginCorrection(&Corrector(), decoded, batch,
                              server::VersionsOf(decoded), outputs, {})
          ->Finish();
  if (result.status == kernels::CorrectStatus::kNonFinite) {
    ExpectReadable({server::ToViolation(result.non_finite)});
    return;
  }
  Expect(result.status == kernels::CorrectStatus::kOk,
         "the CPU has no errors of a device");
  ExpectZeroWhereMasked(decoded, batch, outputs.weights,
                        "weights are 0 where the mask is");
  ExpectZeroWhereMasked(decoded, batch, outputs.gradient,
                        "the gradient is 0 where the mask is");
  const server::Violations found = server::Encode(decoded, result, response);
  ExpectReadable(found);
  if (!found.empty()) return;
  v1::CorrectResponse parsed;
  Expect(parsed.ParseFromString(response->SerializeAsString()),
         "clients can parse the answer");
  if (decoded.omits_metrics) {
    Expect(parsed.rules().empty() && parsed.metrics().empty(),
           "an answer without metrics has no rules either");
    return;
  }
  Expect(parsed.rules_size() == decoded.method.spec.num_rules,
         "an answer has a summary of every rule");
}

void SilenceLibraries() {
  static server::RequestLog& log =
      *new server::RequestLog(std::make_shared<spdlog::logger>(
          "fuzz", std::make_shared<spdlog::sinks::null_sink_mt>()));
  server::LogLibrariesTo(&log);
}

}  // namespace counterweight::fuzz
