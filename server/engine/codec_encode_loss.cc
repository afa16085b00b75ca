// Encodes policy losses.
#include <cmath>

#include "kernels/surrogates/list.h"
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

// Encodes present bounds and all numbers that the surrogate reads, since they
// have defaults.
void EncodeNumbers(const LossSpec& loss, v1::PolicyLoss* out) {
  const kernels::SurrogateInfo info = kernels::InfoOf(loss.surrogate);
  for (const kernels::LossParameterInfo& row : kernels::kLossParameters) {
    const double number = loss.*row.member;
    const bool is_bound = std::isinf(LossSpec().*row.member);
    if (is_bound ? std::isfinite(number) : info.Reads(row.parameter)) {
      SetNumber(row.parameter, number, out);
    }
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
  const bool sums_rows =
      out->aggregation() == v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM;
  out->set_surrogate(SurrogateOf(loss.surrogate, loss.level, sums_rows));
  EncodeNumbers(loss, out);
  out->set_ratio_source(ToWire(kRatioSources, loss.source));
  out->set_allow_double_correction(loss.allow_double_correction);
  out->set_average_advantages(loss.averages_advantages);
  if (loss.kl.estimator != KlEstimator::kNone) {
    EncodeKl(loss.kl, config->mutable_kl_penalty());
  }
}

}  // namespace counterweight::server
