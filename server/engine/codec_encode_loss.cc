// Policy losses spelled out in proto.
#include <cmath>

#include "server/engine/codec_enums.h"
#include "server/engine/codec_loss.h"
#include "server/engine/codec_reduction.h"
#include "server/engine/codec_shortest.h"
#include "server/engine/codec_surrogates.h"

namespace counterweight::server {
namespace {

using kernels::KlEstimator;
using kernels::KlSpec;
using kernels::LossReduction;
using kernels::LossSpec;
using kernels::Surrogate;

void EncodeReduction(const LossReduction& reduction, v1::PolicyLoss* out) {
  const auto is = [&](const ReductionCounts& counts) {
    return counts.batch == reduction.count && counts.row == reduction.row;
  };
  const bool has_norm_length = reduction.scale != 1.0;
  for (const AggregationRow& row : AggregationRows()) {
    if (row.has_norm_length != has_norm_length) continue;
    if (!is(row.original) && !is(row.kept)) continue;
    out->set_aggregation(row.wire);
    out->set_denominator(is(row.original) ? v1::LOSS_DENOMINATOR_ORIGINAL
                                          : v1::LOSS_DENOMINATOR_KEPT);
  }
  if (has_norm_length) {
    const auto invert = [](double length) { return 1.0 / length; };
    out->set_norm_length(
        Shortest(invert(reduction.scale), reduction.scale, invert));
  }
}

const SurrogateRow* RowOf(const LossSpec& loss,
                          v1::LossAggregation aggregation) {
  for (const SurrogateRow& row : SurrogateRows()) {
    if (row.surrogate != loss.surrogate || row.level != loss.level) continue;
    const bool sums = aggregation == v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM;
    // GSPO and LUSPO are told apart by how they are added up.
    if (row.wire == v1::SURROGATE_GSPO && sums) continue;
    return &row;
  }
  return nullptr;
}

// Numbers that have a default which only their surrogates read.
void EncodeShape(const LossSpec& loss, const SurrogateRow& row,
                 v1::PolicyLoss* out) {
  if (row.Reads(kernels::kNumbersTau)) {
    out->set_tau_positive(loss.tau_positive);
    out->set_tau_negative(loss.tau_negative);
  }
  if (row.Reads(kernels::kNumbersShape)) {
    out->set_k_positive(loss.k_positive);
    out->set_lambda_positive(loss.lambda_positive);
    out->set_k_negative(loss.k_negative);
    out->set_lambda_negative(loss.lambda_negative);
  }
  if (row.Reads(kernels::kNumbersFraction)) {
    out->set_covariance_fraction(loss.covariance_fraction);
  }
  if (row.Reads(kernels::kNumbersBounds)) {
    out->set_covariance_lower(loss.covariance_lower);
    out->set_covariance_upper(loss.covariance_upper);
  }
  if (row.Reads(kernels::kNumbersKlWeight)) {
    out->set_covariance_kl_weight(loss.covariance_kl_weight);
  }
  if (row.Reads(kernels::kNumbersBeta)) out->set_beta(loss.beta);
}

void EncodeBounds(const LossSpec& loss, v1::PolicyLoss* out) {
  const auto finite = [](double x) { return std::isfinite(x); };
  if (finite(loss.clip_low)) out->set_clip_low(loss.clip_low);
  if (finite(loss.clip_high)) out->set_clip_high(loss.clip_high);
  if (finite(loss.dual_clip)) out->set_dual_clip(loss.dual_clip);
  if (finite(loss.ratio_cap)) out->set_ratio_cap(loss.ratio_cap);
  if (finite(loss.log_ratio_upper)) {
    out->set_log_ratio_clamp(loss.log_ratio_upper);
  }
}

void EncodeKl(const KlSpec& kl, v1::KlPenalty* out) {
  out->set_estimator(ToWire(kKlEstimators, kl.estimator));
  out->set_coefficient(kl.coefficient);
  if (std::isfinite(kl.token_clamp)) out->set_token_clamp(kl.token_clamp);
  if (std::isfinite(kl.value_clamp)) out->set_value_clamp(kl.value_clamp);
  out->set_straight_through(kl.straight_through);
  out->set_importance_weighted(kl.importance_weighted);
}

}  // namespace

void EncodeLoss(const LossSpec& loss, v1::CorrectionConfig* config) {
  if (loss.surrogate == Surrogate::kNone) return;
  v1::PolicyLoss* out = config->mutable_policy_loss();
  EncodeReduction(loss.reduction, out);
  if (const SurrogateRow* row = RowOf(loss, out->aggregation())) {
    out->set_surrogate(row->wire);
    EncodeShape(loss, *row, out);
  }
  out->set_ratio_source(ToWire(kRatioSources, loss.source));
  EncodeBounds(loss, out);
  out->set_allow_double_correction(loss.allow_double_correction);
  if (loss.kl.estimator != KlEstimator::kNone) {
    EncodeKl(loss.kl, config->mutable_kl_penalty());
  }
}

}  // namespace counterweight::server
