#include "server/engine/codec_audit.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/doctor/audit.h"
#include "kernels/doctor/digits.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

namespace doctor = kernels::doctor;

void CheckRows(const v1::Audit& audit, int64_t num_sequences,
               Violations* violations) {
  for (int i = 0; i < audit.rows_size(); ++i) {
    const int64_t row = audit.rows(i);
    if (row >= 0 && row < num_sequences &&
        (i == 0 || row > audit.rows(i - 1))) {
      continue;
    }
    violations->push_back({Concat("audit.rows[", i, "]"),
                           Concat("must ascend, and be one of the ",
                                  num_sequences, " sequences; it is ", row)});
    return;
  }
}

std::span<const double> SpanOf(
    const google::protobuf::RepeatedField<double>& numbers) {
  return {numbers.data(), static_cast<size_t>(numbers.size())};
}

v1::AuditAdvice AdviceOf(const doctor::AuditedDrift& drift, double alarm) {
  if (!drift.interval) return v1::AUDIT_ADVICE_MORE;
  if (alarm <= 0.0) {
    return drift.more_rows > 0 ? v1::AUDIT_ADVICE_MORE
                               : v1::AUDIT_ADVICE_ENOUGH;
  }
  const auto [low, high] = *drift.interval;
  if (low > 2.0 * alarm || high < alarm / 2.0) return v1::AUDIT_ADVICE_LESS;
  return low <= alarm && alarm <= high ? v1::AUDIT_ADVICE_MORE
                                       : v1::AUDIT_ADVICE_ENOUGH;
}

// "k3 0.0021 (0.0017 to 0.0026) from 96 audited rows; audit more: ...".
std::string SentenceOf(const doctor::AuditedDrift& drift, double alarm,
                       v1::AuditAdvice advice) {
  std::string text = "k3 " + doctor::Digits(drift.k3, 3);
  if (drift.interval) {
    text += Concat(" (", doctor::Digits(drift.interval->low, 3), " to ",
                   doctor::Digits(drift.interval->high, 3), ")");
  }
  text += Concat(" from ", drift.rows, " audited rows; ");
  if (alarm > 0.0)
    text += Concat("the alarm is at ", doctor::Digits(alarm, 3), "; ");
  if (advice == v1::AUDIT_ADVICE_LESS) return text + "audit less";
  if (advice == v1::AUDIT_ADVICE_ENOUGH) return text + "that is enough";
  return text + Concat("audit more: ", drift.more_rows,
                       drift.interval ? " rows like these until within a tenth"
                                      : " rows until there is an interval");
}

}  // namespace

std::string SentenceOfAudit(const doctor::AuditedDrift& drift) {
  constexpr double kNoAlarm = 0.0;
  return SentenceOf(drift, kNoAlarm, AdviceOf(drift, kNoAlarm));
}

void CheckAudit(const v1::Audit& audit, const Tensors& tensors,
                int64_t num_sequences, Violations* violations) {
  const auto fail = [&](std::string_view field, std::string_view reason) {
    violations->push_back({Concat("audit.", field), std::string(reason)});
  };
  const bool has_old = tensors.has(v1::TENSOR_ROLE_OLD_LOG_PROBS);
  const bool has_current = tensors.has(v1::TENSOR_ROLE_CURRENT_LOG_PROBS);
  if (!tensors.has(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS)) {
    violations->push_back(
        {"audit", "needs rollout_log_probs: it measures the drift from them"});
  }
  if (!audit.before_update()) {
    if (!has_old) {
      violations->push_back(
          {"audit",
           "needs old_log_probs, or before_update with current_log_probs"});
    }
  } else if (!has_current) {
    fail("before_update", "needs current_log_probs");
  } else if (has_old) {
    fail("before_update",
         "is for batches without old_log_probs; leave it out, and the rows of "
         "these are audited");
  } else if (audit.rows_size() > 0) {
    fail("rows", "are all before the first update; leave them out");
  }
  CheckRows(audit, num_sequences, violations);
  if (audit.sums_size() > 0 && !doctor::AreAuditSums(SpanOf(audit.sums()))) {
    fail("sums", "must be those of answers, added up number by number");
  }
  if (audit.has_alarm() &&
      !(audit.alarm() > 0.0 && std::isfinite(audit.alarm()))) {
    fail("alarm", "must be finite and > 0; leave it out for none");
  }
}

v1::AuditSummary MeasureAudit(const v1::Audit& audit,
                              const kernels::Batch& batch) {
  const std::span<const int64_t> rows(audit.rows().data(),
                                      static_cast<size_t>(audit.rows_size()));
  const doctor::AuditSums own =
      doctor::SumsOfRows(batch,
                         audit.before_update() ? kernels::InputRole::kCurrent
                                               : kernels::InputRole::kOld,
                         rows.empty() ? nullptr : &rows);
  doctor::AuditSums all = own;
  for (int i = 0; i < audit.sums_size(); ++i) {
    all[static_cast<size_t>(i)] += audit.sums(i);
  }
  const doctor::AuditedDrift drift = doctor::DriftOf(all);
  v1::AuditSummary summary;
  summary.set_rows(drift.rows);
  summary.set_tokens(drift.tokens);
  summary.set_k3(drift.k3);
  if (drift.interval) {
    summary.set_low(drift.interval->low);
    summary.set_high(drift.interval->high);
  }
  summary.set_more_rows(drift.more_rows);
  summary.set_advice(AdviceOf(drift, audit.alarm()));
  summary.set_sentence(SentenceOf(drift, audit.alarm(), summary.advice()));
  summary.mutable_sums()->Add(own.begin(), own.end());
  return summary;
}

}  // namespace counterweight::server
