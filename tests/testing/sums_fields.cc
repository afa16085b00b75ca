#include "tests/testing/sums_fields.h"

namespace counterweight::kernels {
namespace {

std::string At(std::string name, int i) {
  name += '[';
  name += std::to_string(i);
  name += ']';
  return name;
}

// Lists the members of one struct under a common prefix.
class Lister {
 public:
  Lister(std::vector<SumsField>& fields, std::string prefix)
      : fields_(fields), prefix_(std::move(prefix)) {}

  void Count(const char* name, int64_t value) {
    Append(name, Fold::kCount, static_cast<double>(value));
  }
  void Sum(const char* name, double value) { Append(name, Fold::kSum, value); }
  void Range(const std::string& name, const Extrema& range) {
    Append(name + ".min", Fold::kMin, range.min);
    Append(name + ".max", Fold::kMax, range.max);
  }
  void Histogram(const std::string& name,
                 const int64_t (&counts)[kNumHistogramEdges + 1]) {
    for (int b = 0; b <= kNumHistogramEdges; ++b)
      Count(At(name, b).c_str(), counts[b]);
  }
  void Append(const std::string& name, Fold fold, double value) {
    fields_.push_back({prefix_ + name, fold, value});
  }

 private:
  std::vector<SumsField>& fields_;
  std::string prefix_;
};

void List(Lister list, const DriftSums& s) {
  list.Sum("log_ratio", s.log_ratio);
  list.Sum("abs_log_ratio", s.abs_log_ratio);
  list.Sum("k2", s.k2);
  list.Sum("k3", s.k3);
  list.Sum("excess", s.excess);
  list.Sum("excess_squared", s.excess_squared);
  list.Range("log_ratio_range", s.log_ratio_range);
  list.Histogram("histogram", s.histogram);
  list.Sum("numerator_ppl", s.numerator_ppl);
  list.Sum("denominator_ppl", s.denominator_ppl);
  list.Sum("log_ppl_difference", s.log_ppl_difference);
  list.Sum("abs_log_ppl_difference", s.abs_log_ppl_difference);
  list.Sum("ppl_ratio_excess", s.ppl_ratio_excess);
  list.Sum("chi2_sequence", s.chi2_sequence);
  list.Range("sequence_log_ratio_range", s.sequence_log_ratio_range);
  list.Histogram("sequence_histogram", s.sequence_histogram);
}

void List(Lister list, const ProbabilitySums& s) {
  list.Sum("abs_difference", s.abs_difference);
  list.Sum("squared_difference", s.squared_difference);
  list.Append("max_difference", Fold::kMax, s.max_difference);
  list.Sum("p", s.p);
  list.Sum("q", s.q);
  list.Sum("p_squared", s.p_squared);
  list.Sum("q_squared", s.q_squared);
  list.Sum("p_q", s.p_q);
}

void List(Lister list, const WeightSums& s) {
  list.Sum("weight", s.weight);
  list.Sum("weight_squared", s.weight_squared);
  list.Sum("excess", s.excess);
  list.Sum("excess_squared", s.excess_squared);
  list.Sum("kept_weight", s.kept_weight);
  list.Sum("kept_weight_squared", s.kept_weight_squared);
  list.Range("range", s.range);
  list.Count("tokens_high", s.tokens_high);
  list.Count("tokens_low", s.tokens_low);
  list.Count("tokens_outside", s.tokens_outside);
  list.Count("sequences_log_high", s.sequences_log_high);
  list.Sum("sequence_excess", s.sequence_excess);
  list.Range("sequence_range", s.sequence_range);
  list.Append("normalizer", Fold::kNone, s.normalizer);
  list.Count("after_rule_tokens", s.after_rule_tokens);
  list.Count("after_rule_tokens_high", s.after_rule_tokens_high);
}

void List(Lister list, const RuleSums& s) {
  list.Count("seen_tokens", s.seen_tokens);
  list.Count("seen_sequences", s.seen_sequences);
  list.Count("tokens_high", s.tokens_high);
  list.Count("tokens_low", s.tokens_low);
  list.Count("rows_high", s.rows_high);
  list.Count("rows_low", s.rows_low);
  list.Sum("sum", s.sum);
  list.Range("range", s.range);
  list.Sum("row_sum", s.row_sum);
  list.Count("dropped_tokens", s.dropped_tokens);
  list.Count("dropped_sequences", s.dropped_sequences);
}

void List(Lister list, const LossSums& s) {
  list.Sum("total", s.total);
  list.Sum("policy", s.policy);
  list.Sum("kl_penalty", s.kl_penalty);
  list.Append("count", Fold::kNone, s.count);
  list.Sum("kl", s.kl);
  list.Count("kl_tokens", s.kl_tokens);
  list.Sum("log_ratio", s.log_ratio);
  list.Sum("log_ratio_kept", s.log_ratio_kept);
  list.Sum("ratio", s.ratio);
  list.Range("ratio_range", s.ratio_range);
  list.Count("clipped", s.clipped);
  list.Count("high", s.high);
  list.Count("low", s.low);
  list.Count("capped_kept", s.capped_kept);
  list.Sum("gradient_squared", s.gradient_squared);
  list.Sum("slope", s.slope);
  list.Sum("slope_clipped", s.slope_clipped);
  list.Sum("slope_rejected", s.slope_rejected);
}

void List(Lister list, const PeerRuleSums& s) {
  list.Sum("clamped", s.clamped);
  list.Sum("clamped_squared", s.clamped_squared);
  list.Sum("row_squared", s.row_squared);
  list.Range("row_range", s.row_range);
}

void List(Lister list, const PeerCorrectionSums& s) {
  list.Sum("numerator_log_ppl", s.numerator_log_ppl);
  list.Sum("denominator_log_ppl", s.denominator_log_ppl);
  list.Range("log_ppl_difference_range", s.log_ppl_difference_range);
  list.Range("sequence_log_range", s.sequence_log_range);
  list.Count("sequences_log_low", s.sequences_log_low);
  list.Count("sequences_high", s.sequences_high);
  list.Count("sequences_low", s.sequences_low);
  list.Sum("sequence_excess_squared", s.sequence_excess_squared);
}

void List(Lister list, const PeerLossSums& s) {
  list.Sum("abs_log_ratio_kept", s.abs_log_ratio_kept);
  list.Sum("safe_log_ratio_kept", s.safe_log_ratio_kept);
  list.Count("clipped_kept", s.clipped_kept);
  list.Count("high_kept", s.high_kept);
  list.Count("low_kept", s.low_kept);
  list.Count("clipped_zero_kept", s.clipped_zero_kept);
  list.Sum("clipped_ratio", s.clipped_ratio);
  list.Sum("ref_log_ratio", s.ref_log_ratio);
  list.Sum("row_high", s.row_high);
  list.Sum("row_low", s.row_low);
  list.Range("row_high_range", s.row_high_range);
  list.Range("row_low_range", s.row_low_range);
  list.Count("mixed_rows", s.mixed_rows);
  list.Sum("phi", s.phi);
  list.Sum("padding_kl", s.padding_kl);
  list.Count("padding_high", s.padding_high);
  list.Count("padding_low", s.padding_low);
  list.Range("padding_ratio_range", s.padding_ratio_range);
}

void List(Lister list, const BatchSums& s) {
  list.Count("num_sequences", s.num_sequences);
  list.Count("nonempty_sequences", s.nonempty_sequences);
  list.Count("tokens", s.tokens);
  list.Count("kept_tokens", s.kept_tokens);
  list.Count("kept_sequences", s.kept_sequences);
  list.Count("touched_sequences", s.touched_sequences);
  list.Count("zero_weight_tokens", s.zero_weight_tokens);
  list.Count("non_finite_tokens", s.non_finite_tokens);
  list.Count("positive_log_probs", s.positive_log_probs);
}

}  // namespace

std::vector<SumsField> Fields(const BatchSums& sums, int num_rules) {
  std::vector<SumsField> fields;
  List(Lister(fields, ""), sums);
  List(Lister(fields, "drift."), sums.drift);
  List(Lister(fields, "weight."), sums.weight);
  List(Lister(fields, "loss."), sums.loss);
  const PeerCorrectionSums& peers = sums.peers.correction;
  List(Lister(fields, "peers.correction."), peers);
  List(Lister(fields, "peers.probability."), peers.probability);
  List(Lister(fields, "peers.loss."), sums.peers.loss);
  for (int r = 0; r < num_rules; ++r) {
    List(Lister(fields, At("rules", r) + "."), sums.rules[r]);
    List(Lister(fields, At("peers.rules", r) + "."), peers.rules[r]);
  }
  return fields;
}

}  // namespace counterweight::kernels
