#include "server/engine/dialects/areal_metrics.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "server/engine/names.h"

namespace counterweight::server {
namespace {

using kernels::BatchSums;
using kernels::Extrema;

class ArealReporter {
 public:
  ArealReporter(const ArealReport& report, const BatchSums& sums,
                MetricMap* metrics)
      : report_(report),
        sums_(sums),
        metrics_(*metrics),
        tokens_(static_cast<double>(sums.tokens)),
        kept_(static_cast<double>(sums.kept_tokens)),
        keeps_all_(sums.kept_tokens == sums.tokens) {}

  void Run() {
    if (report_.rejection.is_on) {
      metrics_["rs_filtered_fraction"] = Filtered() / std::max(tokens_, 1.0);
    }
    if (!report_.has_loss) return;
    AddCounts();
    AddRatios();
    AddLosses();
    if (report_.rejection.is_on) AddBehaviour();
    metrics_["compute_logp/n_valid_tokens"] = kept_;
  }

 private:
  // Tokens that were rejected, or that got another weight.
  double Filtered() const {
    if (!report_.rejection.clamps) return tokens_ - kept_;
    if (report_.policies.is_decoupled) {
      return static_cast<double>(sums_.weight.tokens_outside);
    }
    return report_.rejection.lower > 1.0 ? tokens_ : 0.0;
  }

  void AddMean(std::string_view name, double mean) {
    if (sums_.tokens > 0) metrics_[Concat(name, "/avg")] = mean;
  }

  void AddRange(std::string_view name, double low, double high) {
    if (sums_.tokens == 0) return;
    metrics_[Concat(name, "/min")] = low;
    metrics_[Concat(name, "/max")] = high;
  }

  // The share of `count` tokens of all.
  void AddShare(std::string_view name, double count) {
    AddMean(name, count / tokens_);
    AddRange(name, count < tokens_ ? 0.0 : 1.0, count > 0.0 ? 1.0 : 0.0);
  }

  void AddCounts() {
    const double all = static_cast<double>(sums_.num_sequences) *
                       static_cast<double>(report_.padded_length);
    metrics_["n_tokens"] = all;
    metrics_["n_valid_tokens"] = tokens_;
    if (report_.loss.type != ArealLossType::kPpo) return;
    metrics_["n_total_tokens"] = all;
    metrics_["n_valid_tokens_in_loss"] = tokens_;
    metrics_["n_masked_tokens"] = all - tokens_;
    metrics_["masked_token_ratio"] = 1.0 - tokens_ / all;
  }

  // At sequence level AReaL sets those of rejected tokens to 0.
  void AddRatios() {
    const kernels::LossSums& loss = sums_.loss;
    const bool by_sequence = report_.loss.by_sequence();
    if (keeps_all_ || !by_sequence) {
      AddMean("importance_weight", loss.ratio / tokens_);
      AddRange("importance_weight", loss.ratio_range.min, loss.ratio_range.max);
    }
    AddMean("approx_kl", loss.log_ratio / tokens_);
    if (!by_sequence) {
      AddRange("approx_kl", std::log(loss.ratio_range.min),
               std::log(loss.ratio_range.max));
    }
    if (report_.has_behaviour) AddBehaviourDifference();
    if (report_.loss.type == ArealLossType::kSapo) AddGates();
  }

  // Behaviour policy less current one. The drift is of proximal and behaviour
  // policy, or of these two.
  void AddBehaviourDifference() {
    const kernels::DriftSums& drift = sums_.drift;
    const ArealPolicies& policies = report_.policies;
    if (policies.is_decoupled && !policies.reuses_current) {
      const double sum = sums_.loss.log_ratio + drift.log_ratio;
      AddMean("logp_diff", -sum / tokens_);
      return;
    }
    const Extrema& range = drift.log_ratio_range;
    AddMean("logp_diff", -drift.log_ratio / tokens_);
    AddRange("logp_diff", -range.max, -range.min);
    AddMean("logp_abs_diff", drift.abs_log_ratio / tokens_);
    if (sums_.tokens > 0) {
      metrics_["logp_abs_diff/max"] = std::max(range.max, -range.min);
    }
  }

  void AddGates() {
    const kernels::LossSpec& spec = report_.loss.spec;
    const Extrema& r = sums_.loss.ratio_range;
    const auto gate = [](double tau, double ratio) {
      return 4.0 / tau / (1.0 + std::exp(-tau * (ratio - 1.0)));
    };
    AddRange("sapo_scaled_gate_pos", gate(spec.tau_positive, r.min),
             gate(spec.tau_positive, r.max));
    AddRange("sapo_scaled_gate_neg", gate(spec.tau_negative, r.min),
             gate(spec.tau_negative, r.max));
  }

  void AddLosses() {
    AddMean("actor_loss", sums_.loss.policy);
    double clipped = 0.0;
    double capped = 0.0;
    if (report_.loss.type != ArealLossType::kSapo) {
      const bool over_kept = report_.loss.by_sequence() ||
                             report_.loss.type == ArealLossType::kCispo;
      clipped = static_cast<double>(over_kept ? sums_.peers.loss.clipped_kept
                                              : sums_.loss.clipped);
    }
    metrics_["clipped_tokens"] = clipped;
    AddShare("clip_ratio", clipped);
    const bool has_dual_clip = std::isfinite(report_.loss.spec.dual_clip);
    if (has_dual_clip) {
      // AReaL counts rejected tokens too, unless the ratio is the row's.
      if (!keeps_all_ && !report_.loss.by_sequence()) return;
      capped = static_cast<double>(sums_.loss.capped_kept);
    }
    metrics_["dual_clipped_tokens"] = capped;
    AddShare("dual_clip_ratio", capped);
  }

  // Over tokens with a weight above 0.
  void AddBehaviour() {
    metrics_["unclipped_behave_tokens"] = kept_;
    AddShare("behave_filtered_ratio", tokens_ - kept_);
    if (sums_.kept_tokens == 0) return;
    metrics_["behave_imp_weight/avg"] = sums_.weight.kept_weight / kept_;
    if (!keeps_all_) return;
    AddRange("behave_imp_weight", sums_.weight.range.min,
             sums_.weight.range.max);
    const bool is_decoupled = report_.policies.is_decoupled;
    const kernels::DriftSums& drift = sums_.drift;
    AddMean("behave_approx_kl", is_decoupled ? drift.log_ratio / tokens_ : 0.0);
    AddRange("behave_approx_kl", is_decoupled ? drift.log_ratio_range.min : 0.0,
             is_decoupled ? drift.log_ratio_range.max : 0.0);
  }

  const ArealReport& report_;
  const BatchSums& sums_;
  MetricMap& metrics_;
  const double tokens_;
  const double kept_;
  const bool keeps_all_;
};

}  // namespace

void AddArealMetrics(const ArealReport& report, const BatchSums& sums,
                     MetricMap* metrics) {
  ArealReporter(report, sums, metrics).Run();
}

}  // namespace counterweight::server
