// Losses of the methods table, spelled out in proto.
#include <cmath>

#include "server/engine/codec_loss.h"
#include "server/engine/codec_surrogates.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;

v1::LossAggregation EncodeAggregation(const kernels::LossReduction& reduction) {
  const bool tokens = reduction.count == BatchCount::kTokens ||
                      reduction.count == BatchCount::kKeptTokens;
  if (tokens) return v1::LOSS_AGGREGATION_TOKEN_MEAN;
  if (reduction.row != RowCount::kOne) {
    return v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN;
  }
  return reduction.count == BatchCount::kOne
             ? v1::LOSS_AGGREGATION_TOKEN_SUM
             : v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM;
}

}  // namespace

void EncodeLoss(const kernels::CorrectionSpec& spec,
                v1::CorrectionConfig* config) {
  const LossSpec& loss = spec.loss;
  if (loss.surrogate == Surrogate::kNone) return;
  v1::PolicyLoss* out = config->mutable_policy_loss();
  out->set_aggregation(EncodeAggregation(loss.reduction));
  const bool kept = loss.reduction.count == BatchCount::kKeptTokens ||
                    loss.reduction.count == BatchCount::kKeptRows;
  out->set_denominator(kept ? v1::LOSS_DENOMINATOR_KEPT
                            : v1::LOSS_DENOMINATOR_ORIGINAL);
  for (const SurrogateRow& row : SurrogateRows()) {
    if (row.surrogate != loss.surrogate || row.level != loss.level) continue;
    const bool sums =
        out->aggregation() == v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM;
    // GSPO and LUSPO are told apart by how they are added up.
    if (row.wire == v1::SURROGATE_GSPO && sums) continue;
    out->set_surrogate(row.wire);
    if ((row.fields & kTau) != 0) {
      out->set_tau_positive(loss.tau_positive);
      out->set_tau_negative(loss.tau_negative);
    }
    if ((row.fields & kShape) != 0) {
      out->set_k_positive(loss.k_positive);
      out->set_lambda_positive(loss.lambda_positive);
      out->set_k_negative(loss.k_negative);
      out->set_lambda_negative(loss.lambda_negative);
    }
    if ((row.fields & kFraction) != 0) {
      out->set_covariance_fraction(loss.covariance_fraction);
    }
    if ((row.fields & kBounds) != 0) {
      out->set_covariance_lower(loss.covariance_lower);
      out->set_covariance_upper(loss.covariance_upper);
    }
    if ((row.fields & kKlWeight) != 0) {
      out->set_covariance_kl_weight(loss.covariance_kl_weight);
    }
    if ((row.fields & kBeta) != 0) out->set_beta(loss.beta);
    break;
  }
  out->set_ratio_source(loss.source == RatioSource::kCurrentRollout
                            ? v1::RATIO_SOURCE_CURRENT_ROLLOUT
                            : v1::RATIO_SOURCE_CURRENT_OLD);
  const auto finite = [](double x) { return std::isfinite(x); };
  if (finite(loss.clip_low)) out->set_clip_low(loss.clip_low);
  if (finite(loss.clip_high)) out->set_clip_high(loss.clip_high);
  if (finite(loss.dual_clip)) out->set_dual_clip(loss.dual_clip);
  if (finite(loss.ratio_cap)) out->set_ratio_cap(loss.ratio_cap);
  if (finite(loss.log_ratio_upper)) {
    out->set_log_ratio_clamp(loss.log_ratio_upper);
  }
  out->set_allow_double_correction(loss.allow_double_correction);
}

}  // namespace counterweight::server
