#include "server/engine/answer_form.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/metrics.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

constexpr uint64_t kAbsentBits = 0x7ff8c0de00000000;

// Notes the names of metrics in their order.
class NameList final : public kernels::MetricSink {
 public:
  explicit NameList(const std::vector<std::string>& rules) : rules_(rules) {}

  void BeginRule(int rule) override {
    prefix_ = Concat("rules/", rules_[static_cast<size_t>(rule)], "/");
  }
  void EndRules() override { prefix_.clear(); }
  void Put(const char* name, double /*value*/) override {
    names.push_back(Concat(prefix_, name));
  }

  std::vector<std::string> names;

 private:
  const std::vector<std::string>& rules_;
  std::string prefix_;
};

// Writes metrics to their places.
class Placed final : public kernels::MetricSink {
 public:
  Placed(const std::vector<size_t>& places, double* metrics)
      : place_(places.data()), metrics_(metrics) {}

  void BeginRule(int /*rule*/) override {}
  void EndRules() override {}
  void Put(const char* /*name*/, double value) override {
    metrics_[*place_++] = value;
  }

 private:
  const size_t* place_;
  double* const metrics_;
};

// Sums of a batch in which every mean has a term and every range an end, so
// that other systems' metrics are all there.
kernels::BatchSums FullSums() {
  constexpr kernels::Extrema kOne{1.0, 1.0};
  kernels::BatchSums sums{};
  sums.num_sequences = sums.nonempty_sequences = sums.kept_sequences = 2;
  sums.tokens = sums.kept_tokens = 4;
  sums.drift.log_ratio_range = sums.drift.sequence_log_ratio_range = kOne;
  sums.weight.range = sums.weight.sequence_range = kOne;
  sums.weight.normalizer = 1.0;
  for (kernels::RuleSums& rule : sums.rules) {
    rule.range = kOne;
    rule.seen_tokens = 4;
    rule.seen_sequences = 2;
  }
  sums.loss.count = 1.0;
  sums.loss.kl_tokens = 4;
  sums.loss.ratio_range = kOne;
  for (kernels::PeerRuleSums& rule : sums.peers.correction.rules) {
    rule.row_range = kOne;
  }
  sums.peers.correction.log_ppl_difference_range = kOne;
  sums.peers.correction.sequence_log_range = kOne;
  sums.peers.loss.row_high_range = sums.peers.loss.row_low_range = kOne;
  sums.peers.loss.padding_ratio_range = kOne;
  return sums;
}

// A row of two tokens, so that every mean has a term.
void AddNamesOfTokenMetrics(const Method& method, MetricMap* metrics) {
  constexpr float kValues[] = {-1.0f, -2.0f};
  constexpr uint8_t kOnes[] = {1, 1};
  constexpr float kWeights[] = {1.0f, 1.0f};
  constexpr int64_t kOffsets[] = {0, 2};
  kernels::Batch batch;
  batch.num_sequences = 1;
  batch.offsets = kOffsets;
  batch.response_mask = kOnes;
  for (kernels::TensorView& tensor : batch.tensors) tensor.data = kValues;
  method.token_metrics(CorrectedTokens(batch, method.spec, kOnes, kWeights),
                       FullSums(), metrics);
}

// Both ascending; a name that the form lacks would be lost.
Violations Spread(const MetricMap& found, const std::vector<std::string>& names,
                  double* metrics) {
  auto next = found.begin();
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_found = next != found.end() && next->first == names[i];
    metrics[i] = is_found ? (next++)->second : Absent();
  }
  if (next == found.end()) return {};
  return {{"method", Concat("has the metric ", Quote(next->first),
                            " of some batches alone, which a prepared call "
                            "does not know; send the request by itself")}};
}

}  // namespace

double Absent() { return std::bit_cast<double>(kAbsentBits); }

bool IsAbsent(double number) {
  return std::bit_cast<uint64_t>(number) == kAbsentBits;
}

AnswerForm::AnswerForm(const Decoded& decoded) {
  const Method& method = decoded.method;
  if (decoded.omits_metrics) return;
  first_metric_ += 2 * static_cast<size_t>(method.spec.num_rules);
  if (method.report || method.row_filter) {
    MetricMap metrics;
    Violations ignored;
    ReportSums(method, FullSums(), &metrics, &ignored);
    if (decoded.HasTokenMetrics()) AddNamesOfTokenMetrics(method, &metrics);
    if (method.row_filter && !decoded.returns_sums) {
      method.row_filter->report({.all = {1.0}, .kept = {1.0}}, &metrics);
    }
    for (const auto& [name, value] : metrics) metrics_.push_back(name);
    return;
  }
  NameList list(method.rule_names);
  kernels::WriteMetrics(method.spec, kernels::BatchSums{}, &list);
  metrics_ = list.names;
  std::sort(metrics_.begin(), metrics_.end());
  for (const std::string& name : list.names) {
    const auto at = std::lower_bound(metrics_.begin(), metrics_.end(), name);
    places_.push_back(static_cast<size_t>(at - metrics_.begin()));
  }
}

Violations AnswerForm::Write(const Decoded& decoded,
                             const kernels::CorrectResult& result,
                             double* numbers) const {
  const kernels::BatchSums& sums = result.sums;
  const Method& method = decoded.method;
  Violations violations = CheckStated(decoded.stated, sums);
  if (!violations.empty()) return violations;
  const AnswerNumbers answer = NumbersOf(method, sums);
  numbers[kLoss] = answer.loss.value_or(Absent());
  numbers[kTokens] = static_cast<double>(answer.tokens);
  numbers[kNonFiniteTokens] = static_cast<double>(answer.non_finite_tokens);
  numbers[kPositiveLogProbs] = static_cast<double>(answer.positive_log_probs);
  const size_t num_rules = (first_metric_ - kFirstRule) / 2;
  for (size_t r = 0; r < num_rules; ++r) {
    numbers[kFirstRule + 2 * r] =
        static_cast<double>(answer.rules[r].dropped_tokens);
    numbers[kFirstRule + 2 * r + 1] =
        static_cast<double>(answer.rules[r].dropped_sequences);
  }
  double* const metrics = numbers + first_metric_;
  if (!method.report && !method.row_filter) {
    if (metrics_.empty()) return violations;
    Placed placed(places_, metrics);
    kernels::WriteMetrics(method.spec, sums, &placed);
    return violations;
  }
  if (decoded.omits_metrics && !method.report_judges) return violations;
  MetricMap found;
  violations = Report(decoded, result, &found);
  if (!violations.empty() || decoded.omits_metrics) return violations;
  return Spread(found, metrics_, metrics);
}

void AnswerForm::Describe(const Decoded& decoded, const double* numbers,
                          v1::CorrectResponse* response) const {
  AnswerNumbers answer;
  if (!IsAbsent(numbers[kLoss])) answer.loss = numbers[kLoss];
  const auto count = [&](size_t place) {
    return static_cast<int64_t>(numbers[place]);
  };
  answer.tokens = count(kTokens);
  answer.non_finite_tokens = count(kNonFiniteTokens);
  answer.positive_log_probs = count(kPositiveLogProbs);
  const size_t num_rules = (first_metric_ - kFirstRule) / 2;
  for (size_t r = 0; r < num_rules; ++r) {
    answer.rules[r] = {count(kFirstRule + 2 * r),
                       count(kFirstRule + 2 * r + 1)};
  }
  MetricMap metrics;
  for (size_t i = 0; i < metrics_.size(); ++i) {
    const double value = numbers[first_metric_ + i];
    if (!IsAbsent(value)) metrics[metrics_[i]] = value;
  }
  EncodeNumbers(decoded, answer, metrics, response);
}

}  // namespace counterweight::server
