// AReaL's losses, token by token, for its metrics: float64, without the factors
// of the reduction.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_TOKEN_LOSSES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_TOKEN_LOSSES_H_

#include <cstddef>
#include <span>

#include "server/engine/corrected_tokens.h"
#include "server/engine/dialects/areal_metrics.h"

namespace counterweight::server {

struct ArealTokenLoss {
  double loss = 0.0;  // times the weight of rejection_sampling
  bool is_clipped = false;
  bool is_capped = false;  // by c_clip
};

// A row after another.
class ArealTokenLosses {
 public:
  // `report` must outlive it.
  explicit ArealTokenLosses(const ArealReport& report) : report_(report) {}

  // `row` must stay valid until the next call.
  void Read(const RowTokens& row);

  // REQUIRES: token i counts.
  ArealTokenLoss Of(size_t i) const;

  // [row.size()] of log-probs and their difference: current less proximal.
  std::span<const double> current() const { return current_; }
  std::span<const double> proximal() const { return proximal_; }
  std::span<const double> log_ratios() const { return log_ratios_; }
  // 0 on a token that level "sequence" leaves out.
  std::span<const double> ratios() const { return ratios_; }

  // SAPO's gates times 4 / tau, by each tau and by that of the token's sign.
  std::span<const double> positive_gates() const { return positive_gates_; }
  std::span<const double> negative_gates() const { return negative_gates_; }
  double Gate(size_t i) const {
    return advantages_[i] > 0.0 ? positive_gates_[i] : negative_gates_[i];
  }

 private:
  void AverageOverKept();
  void SetGates(double tau, RowNumbers* gates);

  const ArealReport& report_;
  std::span<const uint8_t> keep_;
  std::span<const double> weights_, current_, proximal_;
  RowNumbers advantages_, log_ratios_, ratios_;
  RowNumbers positive_gates_, negative_gates_;
  RowNumbers exponents_, exp_, expm1_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_TOKEN_LOSSES_H_
