#include "server/engine/codec_step_report.h"

#include <string>

#include "server/engine/codec_labels.h"

namespace counterweight::server {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 48;
constexpr int64_t kMaxReports = 65536;
constexpr int kMaxReasons = 8;

void CheckCount(const std::string& field, int64_t count,
                Violations* violations) {
  if (count >= 0 && count <= kMaxCount) return;
  violations->push_back({field, "must be between 0 and 2^48"});
}

Receipt Read(const v1::Receipt& message, const std::string& field,
             Violations* violations) {
  CheckCount(field + ".tokens", message.tokens(), violations);
  CheckCount(field + ".changed_tokens", message.changed_tokens(), violations);
  CheckCount(field + ".dropped_tokens", message.dropped_tokens(), violations);
  if (message.changed_tokens() > message.tokens()) {
    violations->push_back(
        {field + ".changed_tokens", "must be at most " + field + ".tokens"});
  }
  return {.fingerprint = message.fingerprint(),
          .tokens = message.tokens(),
          .changed_tokens = message.changed_tokens(),
          .dropped_tokens = message.dropped_tokens(),
          .weight_excess = message.weight_excess()};
}

void ReadSkipped(const v1::ReportStepRequest& request,
                 Result<StepReport>* result) {
  if (request.skipped_batches().size() > kMaxReasons) {
    result->violations.push_back(
        {"skipped_batches",
         "must have at most " + std::to_string(kMaxReasons) + " reasons"});
    return;
  }
  for (const auto& [reason, batches] : request.skipped_batches()) {
    if (!IsLabel(reason)) {
      result->violations.push_back(
          {"skipped_batches", std::string("a reason ") + kLabelPattern});
      continue;
    }
    CheckCount("skipped_batches[" + reason + "]", batches, &result->violations);
    result->value.skipped_batches[reason] = batches;
  }
}

}  // namespace

Result<StepReport> ReadStepReport(const v1::ReportStepRequest& request) {
  const v1::Labels& labels = request.labels();
  Result<StepReport> result;
  StepReport& report = result.value;
  report.request_id = request.request_id();
  report.run = labels.run();
  report.step = labels.step();
  report.tokens = request.tokens();
  report.ratio_all_one = request.ratio_all_one();
  Violations& violations = result.violations;
  CheckLabels(request.request_id(), labels, &violations);
  const auto require = [&](bool has, const char* field) {
    if (!has) violations.push_back({field, "is required"});
  };
  require(!request.request_id().empty(), "request_id");
  require(!labels.run().empty(), "labels.run");
  require(labels.has_step(), "labels.step");
  CheckCount("tokens", request.tokens(), &violations);
  if (request.has_issued()) {
    report.issued = Read(request.issued(), "issued", &violations);
  }
  if (request.has_applied()) {
    report.applied = Read(request.applied(), "applied", &violations);
  }
  ReadSkipped(request, &result);
  if (request.has_num_reports()) report.num_reports = request.num_reports();
  if (report.num_reports < 1 || report.num_reports > kMaxReports) {
    violations.push_back({"num_reports", "must be between 1 and 65536"});
  }
  return result;
}

std::string_view WarningOf(v1::ReceiptState state) {
  if (state == v1::RECEIPT_STATE_UNUSED) {
    return "the loss did not use the weights and the mask of this step: its "
           "weights were all 1, or its mask was not the keep mask; multiply "
           "the loss of each token by its weight and keep mask";
  }
  if (state == v1::RECEIPT_STATE_ROUNDED) {
    return "the loss used rounded weights; keep them in float32 up to the loss";
  }
  if (state == v1::RECEIPT_STATE_REPLACED) {
    return "the loss used other weights or another mask than this step "
           "received: of other rows, shifted by a token, or computed elsewhere";
  }
  return "";
}

}  // namespace counterweight::server
