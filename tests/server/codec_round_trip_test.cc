// DecodeConfig(*EncodeConfig(x)) is x for every x that the wire can express;
// every other x has no encoding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/log_ratio.h"
#include "server/engine/codec_config.h"
#include "server/engine/codec_surrogates.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/specs.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::CorrectionSpec;
using kernels::KlSpec;
using kernels::LossReduction;
using kernels::LossSpec;
using kernels::Random;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using kernels::TokenSet;

constexpr double kSpread = 0.3;

CorrectionSpec SpecOf(const v1::CorrectionConfig& config, uint64_t seed) {
  RequestFacts facts;
  facts.has_rollout_log_probs = true;
  facts.has_old_log_probs = true;
  facts.has_current_log_probs = true;
  facts.seed = seed;
  const Result<CorrectionSpec> spec = DecodeConfig(config, facts);
  for (const Violation& violation : spec.violations) {
    ADD_FAILURE() << violation.field << ": " << violation.description;
  }
  return spec.value;
}

// Reductions that need no counts of other ranks.
LossReduction SayableReduction(Random& random) {
  constexpr LossReduction kReductions[] = {
      {BatchCount::kOne, RowCount::kOne},
      {BatchCount::kTokens, RowCount::kOne},
      {BatchCount::kKeptTokens, RowCount::kOne},
      {BatchCount::kNonemptyRows, RowCount::kOne},
      {BatchCount::kKeptRows, RowCount::kOne},
      {BatchCount::kNonemptyRows, RowCount::kTokens},
      {BatchCount::kKeptRows, RowCount::kKeptTokens}};
  LossReduction reduction =
      kReductions[random.Integer(0, std::size(kReductions) - 1)];
  const bool sums_rows = reduction.row == RowCount::kOne &&
                         (reduction.count == BatchCount::kNonemptyRows ||
                          reduction.count == BatchCount::kKeptRows);
  if (sums_rows && random.Chance(0.5)) {
    reduction.scale = 1.0 / random.Uniform(1, 40000);
  }
  return reduction;
}

// Returns `loss` as a surrogate of the wire expresses it: fields that the
// surrogate does not read have their defaults.
LossSpec SayableLoss(Random& random, const LossSpec& loss) {
  const auto wire = static_cast<v1::Surrogate>(
      random.Integer(1, v1::Surrogate_ARRAYSIZE - 1));
  const SurrogateRow row = FindSurrogate(wire).value();
  LossSpec said;
  said.surrogate = row.surrogate;
  said.level = row.level;
  said.source = said.metrics_source = random.Chance(0.5)
                                          ? RatioSource::kCurrentRollout
                                          : RatioSource::kCurrentOld;
  for (const kernels::LossParameterInfo& info : kernels::kLossParameters) {
    if (!row.info.Reads(info.parameter)) continue;
    if (!info.is_required && random.Chance(0.5)) continue;
    said.*info.member = random.Uniform(0.1, 0.9);
  }
  // Their legal numbers lie elsewhere.
  if (std::isfinite(said.dual_clip)) said.dual_clip += 1.0;
  said.log_ratio_lower = -said.log_ratio_upper;
  if (row.info.Reads(kernels::LossParameter::kBeta)) said.beta = 0.3;
  said.log_prob_form =
      row.info.Has(kernels::kTraitDivergence) && std::isfinite(said.ratio_cap);
  said.seed = loss.seed;
  said.allow_double_correction = true;
  said.averages_advantages =
      said.level != kernels::LossLevel::kToken && random.Chance(0.5);
  said.reduction = SayableReduction(random);
  if (row.wire == v1::SURROGATE_GEO_MEAN) {
    said.reduction = {BatchCount::kKeptRows, RowCount::kKeptTokens};
  }
  if (row.info.Has(kernels::kTraitOverOriginal))
    said.over = TokenSet::kOriginal;
  said.kl = loss.kl;
  said.kl.gradient_ratio_cap = 0.0;
  if (said.kl.has_own_ratio) said.kl.importance_weighted = false;
  said.kl.has_own_ratio = said.kl.clamps_product = false;
  said.kl.ratio_always_moves = false;
  said.kl.has_weight = false;
  said.kl.source = KlSpec().source;
  said.kl.ratio_source = KlSpec().ratio_source;
  said.kl.over = TokenSet::kKept;
  said.kl.reduction = said.reduction;
  if (said.kl.estimator == kernels::KlEstimator::kNone) said.kl = KlSpec();
  return said;
}

// Returns the nearest spec that a CorrectionConfig can express.
CorrectionSpec Sayable(Random& random, CorrectionSpec spec) {
  spec.unknown_rollout = false;
  spec.peer_sums = false;
  spec.weight.counts_empty_rows = false;
  for (int r = 0; r < kernels::kMaxRules; ++r) {
    kernels::RejectionRule& rule = spec.rules[r];
    if (r >= spec.num_rules) {
      rule = {};
    } else if (rule.estimator == kernels::Estimator::kRatio) {
      // Bounds are logarithms of written ratios.
      rule.lower = kernels::LogRatio(std::exp(rule.lower));
      rule.upper = kernels::LogRatio(std::exp(rule.upper));
    }
  }
  if (spec.loss.surrogate == Surrogate::kNone) {
    spec.loss = {};
  } else {
    spec.loss = SayableLoss(random, spec.loss);
  }
  return spec;
}

std::string Describe(const CorrectionSpec& spec) {
  return ToString(spec) + "; " + kernels::Describe(spec.loss);
}

TEST(CodecRoundTrip, WhatTheWireHasWordsForComesBackBitForBit) {
  Random random(1);
  int losses = 0;
  int penalties = 0;
  int norms = 0;
  for (int i = 0; i < 20000; ++i) {
    const CorrectionSpec spec =
        Sayable(random, kernels::RandomLossSpec(random, kSpread, 100));
    if (!Validate(spec).empty()) continue;
    const auto config = EncodeConfig(spec);
    ASSERT_TRUE(config) << Describe(spec);
    ASSERT_TRUE(SpecOf(*config, spec.loss.seed) == spec)
        << Describe(spec) << "\n"
        << config->ShortDebugString();
    losses += config->has_policy_loss();
    penalties += config->has_kl_penalty();
    norms += config->policy_loss().has_norm_length();
  }
  EXPECT_GT(losses, 5000);
  EXPECT_GT(penalties, 2000);
  EXPECT_GT(norms, 500);
}

TEST(CodecRoundTrip, NoRandomSpecComesBackAsAnother) {
  Random random(2);
  int encoded = 0;
  for (int i = 0; i < 5000; ++i) {
    const CorrectionSpec spec = kernels::RandomLossSpec(random, kSpread, 100);
    const auto config = EncodeConfig(spec);
    if (!config) continue;
    ++encoded;
    ASSERT_TRUE(SpecOf(*config, spec.loss.seed) == spec) << Describe(spec);
  }
  EXPECT_GT(encoded, 0);
}

TEST(CodecRoundTrip, WhatTheWireHasNoWordsForIsNotEncoded) {
  LossSpec ppo = kernels::BusyLoss(Surrogate::kPpoClip, kSpread);
  ppo.peer_sums = false;
  ASSERT_TRUE(EncodeConfig(kernels::WithLoss(ppo)));
  const auto refuses = [&](void (*change)(LossSpec*)) {
    LossSpec loss = ppo;
    change(&loss);
    EXPECT_THAT(Validate(kernels::WithLoss(loss)), testing::IsEmpty());
    EXPECT_FALSE(EncodeConfig(kernels::WithLoss(loss)))
        << kernels::Describe(loss);
  };
  refuses([](LossSpec* loss) { loss->log_ratio_upper = 2.0; });
  refuses([](LossSpec* loss) { loss->log_ratio_lower = -2.0; });
  refuses([](LossSpec* loss) { loss->clip_low = LossSpec::kNoBound; });
  refuses([](LossSpec* loss) { loss->reduction.scale = 0.5; });
  refuses([](LossSpec* loss) { loss->reduction.count = BatchCount::kGroups; });
  refuses([](LossSpec* loss) { loss->source = RatioSource::kCurrentSelf; });
  refuses([](LossSpec* loss) { loss->over = TokenSet::kOriginal; });
  refuses([](LossSpec* loss) { loss->prescales_advantages = true; });
  refuses([](LossSpec* loss) { loss->counts_padding = true; });
  refuses([](LossSpec* loss) { loss->applies_weight = false; });
  refuses([](LossSpec* loss) { loss->peer_sums = true; });
  refuses([](LossSpec* loss) {
    loss->kl.estimator = kernels::KlEstimator::kK3;
    loss->kl.over = TokenSet::kOriginal;
  });
  refuses([](LossSpec* loss) {
    loss->kl.estimator = kernels::KlEstimator::kK3;
    loss->kl.reduction.count = BatchCount::kOne;
  });
  CorrectionSpec spec;
  spec.peer_sums = true;
  EXPECT_FALSE(EncodeConfig(spec));
}

}  // namespace
}  // namespace counterweight::server
