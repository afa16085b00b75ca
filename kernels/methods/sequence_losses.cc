// Losses of one ratio per sequence.
#include "kernels/methods/building_blocks.h"
#include "kernels/methods/rows.h"

namespace counterweight::kernels::methods {
namespace {

constexpr std::string_view kGspo =
    "C. Zheng et al., Group Sequence Policy Optimization, 2025, "
    "arXiv:2507.18071";

LossSpec SequenceClip(LossLevel level, double low, double high) {
  LossSpec loss =
      Clipped(Loss(Surrogate::kPpoClip, RatioSource::kCurrentOld), low, high);
  loss.level = level;
  return RowMeans(loss);
}

constexpr MethodParameter ClipNats(std::string_view name, double value) {
  return {name, "nats", value,
          "log ratios are clipped beyond this, against the advantage, >= 0"};
}

std::vector<Method> GspoRows() {
  return {
      {.name = "gspo",
       .origin = "trl",
       .origin_name = "importance_sampling_level: sequence",
       .summary = "PPO's clip of the geometric mean ratio of each sequence.",
       .formula =
           "loss = mean over rows of (1/n_i) sum_t max(-A_t r_i, -A_t "
           "clip(r_i, 1 - clip_low, 1 + clip_high)); r_i = exp((1/n_i) sum_t "
           "l_t); l = current - old",
       .when_to_use = "Mixture-of-experts models and rewards of whole answers, "
                      "where ratios of single tokens are noise.",
       .reference = kGspo,
       .parameters = {ClipLow(3e-4), ClipHigh(4e-4)},
       .make =
           [](Values v) {
             return OnlyLoss(SequenceClip(LossLevel::kSequence, v[0], v[1]));
           }},
      {.name = "gspo_token",
       .origin = "verl",
       .origin_name = "gspo",
       .summary = "gspo whose gradient reaches each token by its own "
                  "advantage.",
       .formula =
           "loss = mean over rows of (1/n_i) sum_t max(-A_t r_t, -A_t "
           "clip(r_t, 1 - clip_low, 1 + clip_high)); r_t = exp((1/n_i) sum_t "
           "l_t), with a derivative by lp_t alone, r_t; l = current - old",
       .when_to_use = "gspo with advantages that differ along a sequence, as "
                      "in multi-turn training.",
       .reference = kGspo,
       .parameters = {ClipLow(3e-4), ClipHigh(4e-4)},
       .make =
           [](Values v) {
             return OnlyLoss(
                 SequenceClip(LossLevel::kSequenceToken, v[0], v[1]));
           }},
      {.name = "luspo",
       .origin = "trl",
       .origin_name = "loss_type: luspo",
       .summary = "gspo whose sequences count by their length.",
       .formula =
           "loss = mean over rows of sum_t max(-A_t r_i, -A_t clip(r_i, 1 - "
           "clip_low, 1 + clip_high)); r_i = exp((1/n_i) sum_t l_t); "
           "l = current - old",
       .when_to_use = "Where gspo makes answers shorter than they should be.",
       .reference = "Length-Unbiased Sequence Policy Optimization, 2026, "
                    "arXiv:2602.05261",
       .parameters = {ClipLow(2e-3), ClipHigh(2.5e-3)},
       .make =
           [](Values v) {
             LossSpec loss = SequenceClip(LossLevel::kSequence, v[0], v[1]);
             loss.reduction.row = RowCount::kOne;
             return OnlyLoss(loss);
           }},
  };
}

std::vector<Method> ShapedRows() {
  return {
      {.name = "geo_mean",
       .origin = "verl",
       .origin_name = "geo_mean",
       .summary = "Geometric mean of clipped ratios (GMPO).",
       .formula =
           "loss = mean over rows of -(mean A) exp((1/n_i) sum_t x_t); x_t = "
           "min(l_t, clip_high) where A_t > 0, max(l_t, -clip_low) where A_t "
           "< 0, else 0; l = current - old",
       .when_to_use = "Where single extreme ratios unsettle an arithmetic "
                      "mean; it bears wide clips.",
       .reference = "Y. Zhao et al., Geometric-Mean Policy Optimization, 2025, "
                    "arXiv:2507.20673",
       .parameters = {ClipNats("clip_low", 0.4), ClipNats("clip_high", 0.4)},
       .make =
           [](Values v) {
             return OnlyLoss(RowMeans(
                 Clipped(Loss(Surrogate::kGeoMean, RatioSource::kCurrentOld),
                         v[0], v[1])));
           }},
      {.name = "vespo",
       .origin = "trl",
       .origin_name = "loss_type: vespo",
       .summary = "Log-probs times advantages, weighted by a smooth function "
                  "of each sequence's ratio.",
       .formula =
           "loss = (1/n) sum_t -A_t phi_i lp_t; phi = exp(lambda + k q - "
           "lambda exp(q)), detached; q = sum_t c_20(l_t) clamped to [log "
           "1e-8, 20]; k and lambda are k_positive and lambda_positive where "
           "A_t >= 0, else k_negative and lambda_negative; l = current - old",
       .when_to_use = "Stale or asynchronous data, where a sequence should "
                      "fade out instead of being cut off.",
       .reference = "Shen et al., VESPO, 2026, arXiv:2602.10693",
       .parameters = {{"k_positive", "", 2.0, "k where A >= 0, finite"},
                      {"lambda_positive", "", 3.0,
                       "lambda where A >= 0, finite, at least 1e-4 is taken"},
                      {"k_negative", "", 3.0, "k where A < 0, finite"},
                      {"lambda_negative", "", 2.0,
                       "lambda where A < 0, finite, at least 1e-4 is taken"}},
       .make =
           [](Values v) {
             LossSpec loss = Loss(Surrogate::kVespo, RatioSource::kCurrentOld);
             loss.over = TokenSet::kOriginal;
             loss.k_positive = v[0];
             loss.lambda_positive = v[1];
             loss.k_negative = v[2];
             loss.lambda_negative = v[3];
             return OnlyLoss(loss);
           }},
  };
}

}  // namespace

std::vector<Method> SequenceLossRows() {
  return Join({GspoRows(), ShapedRows()});
}

}  // namespace counterweight::kernels::methods
