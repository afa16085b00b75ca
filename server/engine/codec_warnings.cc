#include "server/engine/codec_warnings.h"

#include <cmath>
#include <cstdio>

#include "server/engine/names.h"

namespace counterweight::server {
namespace {

// "ratio is outside 0.95 to 1.05": spec.h has bounds of ratios as logarithms.
std::string OutsideOf(const kernels::RejectionRule& rule) {
  const auto text = [&](double bound) {
    const bool is_ratio = rule.estimator == kernels::Estimator::kRatio;
    char digits[32];
    std::snprintf(digits, sizeof(digits), "%.6g",
                  is_ratio ? std::exp(bound) : bound);
    return std::string(digits);
  };
  const char* const statistic = kernels::Name(rule.estimator);
  if (rule.lower == -kernels::kUnbounded) {
    return Concat(statistic, " is above ", text(rule.upper));
  }
  if (rule.upper == kernels::kUnbounded) {
    return Concat(statistic, " is below ", text(rule.lower));
  }
  return Concat(statistic, " is outside ", text(rule.lower), " to ",
                text(rule.upper));
}

std::string WarnOfRule(const Method& method, size_t r, int64_t dropped,
                       int64_t covered) {
  const kernels::RejectionRule& rule = method.spec.rules[r];
  const std::string& name = method.rule_names[r];
  const bool drops = rule.effect == kernels::Effect::kDrop;
  // Other systems' answers have their own metrics.
  const std::string side =
      method.report ? ""
                    : Concat("; rules/", name,
                             "/low_fraction and high_fraction show the side");
  return Concat("rule ", name, drops ? " drops " : " zeroes the weights of ",
                100 * dropped / covered,
                " % of the tokens it covers, where the ", OutsideOf(rule), side,
                ". If the drift (k3) is as usual, the interval is too narrow: "
                "`counterweight suggest FILE` prints bounds that fit");
}

}  // namespace

std::vector<std::string> WarnOfTokenMetrics(const Method& method, bool is_part,
                                            bool is_on_device) {
  if (!method.token_metrics || (!is_part && !is_on_device)) return {};
  return {Concat("Metrics of ", method.name,
                 " that need a pass over a batch's tokens are absent: ",
                 is_part ? "the sums of a step's parts do not have them"
                         : "the tensors are on a device")};
}

std::vector<std::string> WarnOfNumbers(const Decoded& decoded,
                                       const AnswerNumbers& numbers) {
  std::vector<std::string> warnings;
  if (numbers.positive_log_probs > 0) {
    warnings.push_back(Concat(
        "positive_log_probs: ", numbers.positive_log_probs, " of ",
        numbers.tokens,
        " tokens have a log-prob above 0, a probability above 1; compute "
        "log-probs in float32, in the trainer and in the inference engine"));
  }
  if (decoded.omits_metrics) return warnings;
  const kernels::CorrectionSpec& spec = decoded.method.spec;
  int64_t covered = numbers.tokens;
  for (size_t r = 0; r < decoded.method.rule_names.size(); ++r) {
    const int64_t dropped = numbers.rules[r].dropped_tokens;
    if (dropped > covered / 2.0) {
      warnings.push_back(WarnOfRule(decoded.method, r, dropped, covered));
    }
    if (spec.evaluation == kernels::Evaluation::kSequential &&
        spec.rules[r].effect == kernels::Effect::kDrop) {
      covered -= dropped;
    }
  }
  return warnings;
}

}  // namespace counterweight::server
