#include "server/engine/dialects/areal_token_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

#include "server/engine/dialects/areal_token_losses.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

// Terms of tokens: their sum, count and range.
struct ArealTerms {
  double sum = 0.0;
  double count = 0.0;
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double x) {
    sum += x;
    count += 1.0;
    low = std::min(low, x);
    high = std::max(high, x);
  }

  void Write(std::string_view name, MetricMap* metrics) const {
    const bool has_any = count > 0.0;
    (*metrics)[Concat(name, "/avg")] = has_any ? sum / count : kNan;
    (*metrics)[Concat(name, "/min")] = has_any ? low : kNan;
    (*metrics)[Concat(name, "/max")] = has_any ? high : kNan;
  }
};

class ArealPass {
 public:
  explicit ArealPass(const ArealReport& report)
      : report_(report), losses_(report) {}

  void Add(const RowTokens& row) {
    losses_.Read(row);
    if (report_.has_behaviour) {
      behaviour_ = row.of(report_.policies.Behaviour());
    }
    for (size_t i = 0; i < row.mask.size(); ++i) {
      if (row.mask[i] == 0) continue;
      AddToken(i);
      if (report_.has_behaviour) AddBehaviour(i);
      if (row.keep[i] != 0) AddKept(row, i);
      if (is_sapo()) AddGates(i);
    }
  }

  void Write(MetricMap* metrics) const {
    if (current_.count == 0.0) return;
    loss_.Write("actor_loss", metrics);
    current_.Write("new_logp", metrics);
    log_ratio_.Write("approx_kl", metrics);
    ratio_.Write("importance_weight", metrics);
    proximal_.Write("compute_logp/prox_logp_gt", metrics);
    if (std::isfinite(report_.loss.spec.dual_clip)) {
      capped_.Write("dual_clip_ratio", metrics);
      (*metrics)["dual_clipped_tokens"] = capped_.sum;
    }
    if (!is_sapo()) clipped_current_.Write("clipped_new_logp", metrics);
    if (report_.rejection.is_on) {
      weight_.Write("behave_imp_weight", metrics);
      correction_.Write("behave_approx_kl", metrics);
    }
    if (report_.has_behaviour) WriteBehaviour(metrics);
    if (!is_sapo()) return;
    gate_.Write("sapo_soft_gate", metrics);
    positive_gate_.Write("sapo_scaled_gate_pos", metrics);
    negative_gate_.Write("sapo_scaled_gate_neg", metrics);
  }

 private:
  bool is_sapo() const { return report_.loss.type == ArealLossType::kSapo; }

  void AddToken(size_t i) {
    const ArealTokenLoss loss = losses_.Of(i);
    loss_.Add(loss.loss);
    capped_.Add(loss.is_capped ? 1.0 : 0.0);
    const double current = losses_.current()[i];
    current_.Add(current);
    log_ratio_.Add(losses_.log_ratios()[i]);
    ratio_.Add(losses_.ratios()[i]);
    if (!loss.is_clipped) return;
    clipped_current_.Add(current);
    if (report_.has_behaviour) clipped_behaviour_.Add(behaviour_[i]);
  }

  void AddBehaviour(size_t i) {
    const double difference = behaviour_[i] - losses_.current()[i];
    old_.Add(behaviour_[i]);
    difference_.Add(difference);
    abs_difference_.Add(std::fabs(difference));
  }

  // Rejection leaves these tokens in.
  void AddKept(const RowTokens& row, size_t i) {
    const double proximal = losses_.proximal()[i];
    proximal_.Add(proximal);
    if (!report_.rejection.is_on) return;
    weight_.Add(row.weights[i]);
    correction_.Add(proximal - behaviour_[i]);
  }

  void AddGates(size_t i) {
    gate_.Add(losses_.Gate(i));
    positive_gate_.Add(losses_.positive_gates()[i]);
    negative_gate_.Add(losses_.negative_gates()[i]);
  }

  void WriteBehaviour(MetricMap* metrics) const {
    old_.Write("old_logp", metrics);
    difference_.Write("logp_diff", metrics);
    abs_difference_.Write("logp_abs_diff", metrics);
    if (!is_sapo()) clipped_behaviour_.Write("clipped_old_logp", metrics);
  }

  const ArealReport& report_;
  ArealTokenLosses losses_;
  std::span<const double> behaviour_;
  // Over tokens that count.
  ArealTerms loss_, capped_, current_, log_ratio_, ratio_;
  ArealTerms old_, difference_, abs_difference_;
  ArealTerms gate_, positive_gate_, negative_gate_;
  // Over clipped ones.
  ArealTerms clipped_current_, clipped_behaviour_;
  // Over those that rejection leaves in.
  ArealTerms proximal_, weight_, correction_;
};

}  // namespace

void AddArealTokenMetrics(const ArealReport& report,
                          const CorrectedTokens& tokens, MetricMap* metrics) {
  ArealPass pass(report);
  tokens.ForEachRow([&](const RowTokens& row) { pass.Add(row); });
  pass.Write(metrics);
}

}  // namespace counterweight::server
