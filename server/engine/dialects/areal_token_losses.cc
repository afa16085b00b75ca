#include "server/engine/dialects/areal_token_losses.h"

#include <algorithm>
#include <cmath>

namespace counterweight::server {

using kernels::InputRole;

void ArealTokenLosses::Read(const RowTokens& row) {
  keep_ = row.keep;
  weights_ = row.weights;
  current_ = row.of(InputRole::kCurrent);
  proximal_ = row.of(report_.policies.Proximal());
  const std::span<const double> advantages = row.of(InputRole::kAdvantages);
  advantages_.assign(advantages.begin(), advantages.end());
  Subtract(current_, proximal_, &log_ratios_);
  if (report_.loss.by_sequence()) {
    AverageOverKept();
  } else {
    Exponentials(log_ratios_, &ratios_, &expm1_);
  }
  if (report_.loss.type != ArealLossType::kSapo) return;
  SetGates(report_.loss.spec.tau_positive, &positive_gates_);
  SetGates(report_.loss.spec.tau_negative, &negative_gates_);
}

// The geometric mean of the ratios, and the mean of the advantages.
void ArealTokenLosses::AverageOverKept() {
  double log_ratio = 0.0;
  double advantage = 0.0;
  double kept = 0.0;
  for (size_t i = 0; i < keep_.size(); ++i) {
    if (keep_[i] == 0) continue;
    log_ratio += log_ratios_[i];
    advantage += advantages_[i];
    kept += 1.0;
  }
  kept = std::max(kept, 1.0);
  exponents_.assign(1, log_ratio / kept);
  Exponentials(exponents_, &exp_, &expm1_);
  ratios_.resize(keep_.size());
  for (size_t i = 0; i < keep_.size(); ++i) {
    ratios_[i] = keep_[i] != 0 ? exp_[0] : 0.0;
    advantages_[i] = keep_[i] != 0 ? advantage / kept : 0.0;
  }
}

void ArealTokenLosses::SetGates(double tau, RowNumbers* gates) {
  exponents_.resize(ratios_.size());
  for (size_t i = 0; i < ratios_.size(); ++i) {
    exponents_[i] = -tau * (ratios_[i] - 1.0);
  }
  Exponentials(exponents_, &exp_, &expm1_);
  gates->resize(ratios_.size());
  for (size_t i = 0; i < ratios_.size(); ++i) {
    (*gates)[i] = 4.0 / tau / (1.0 + exp_[i]);
  }
}

ArealTokenLoss ArealTokenLosses::Of(size_t i) const {
  const kernels::LossSpec& spec = report_.loss.spec;
  const double advantage = advantages_[i];
  const double ratio = ratios_[i];
  ArealTokenLoss of;
  if (report_.loss.type == ArealLossType::kSapo) {
    of.loss = -advantage * Gate(i);
    return of;
  }
  const double clipped =
      std::clamp(ratio, 1.0 - spec.clip_low, 1.0 + spec.clip_high);
  if (report_.loss.type == ArealLossType::kCispo) {
    of.loss = -clipped * advantage * current_[i];
    of.is_clipped = keep_[i] != 0 && clipped != ratio;
  } else {
    of.loss = std::max(-ratio * advantage, -clipped * advantage);
    of.is_clipped = -ratio * advantage < -clipped * advantage;
    if (std::isfinite(spec.dual_clip)) {
      const double cap = spec.dual_clip * std::fabs(advantage);
      of.is_capped = cap < of.loss;
      of.loss = std::min(of.loss, cap);
    }
  }
  if (!report_.rejection.is_on) return of;
  of.loss = keep_[i] != 0 ? of.loss * weights_[i] : 0.0;
  return of;
}

}  // namespace counterweight::server
