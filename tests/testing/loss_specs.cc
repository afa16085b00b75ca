#include "tests/testing/loss_specs.h"

#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "kernels/surrogates/list.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

template <class Enum>
Enum AnyLossEnum(Random& random, Enum last) {
  return static_cast<Enum>(random.Integer(0, static_cast<int64_t>(last)));
}

// The nearest loss without the combinations that Validate() refuses.
LossSpec Legal(LossSpec loss) {
  const Surrogate surrogate = loss.surrogate;
  const SurrogateInfo info = InfoOf(surrogate);
  if (info.Has(kTraitLogRatio)) {
    loss.log_ratio_lower = -LossSpec::kNoBound;
    loss.log_ratio_upper = LossSpec::kNoBound;
  }
  if (info.Has(kTraitOverOriginal)) loss.over = TokenSet::kOriginal;
  if (info.Has(kTraitOverKept)) loss.over = TokenSet::kKept;
  if (!info.Has(kTraitCountsPadding)) loss.counts_padding = false;
  if (info.Has(kTraitRow) || loss.counts_padding) loss.counts_dropped = false;
  if (loss.prescales_advantages) {
    // Rules read the scaled advantages, so the kept tokens cannot scale them.
    loss.reduction.count = BatchCount::kTokens;
    if (loss.reduction.row == RowCount::kKeptTokens)
      loss.reduction.row = RowCount::kTokens;
  }
  if (loss.level == LossLevel::kToken || loss.prescales_advantages ||
      loss.counts_padding || loss.measures_padding) {
    loss.averages_advantages = false;
  }
  KlSpec& kl = loss.kl;
  if (kl.straight_through || !HasRatio(surrogate) || info.Has(kTraitRowRatio))
    kl.importance_weighted = !kl.straight_through && kl.has_own_ratio;
  kl.has_own_ratio = kl.has_own_ratio && kl.importance_weighted;
  kl.ratio_always_moves = kl.ratio_always_moves && kl.has_own_ratio;
  kl.clamps_product = kl.clamps_product && kl.importance_weighted;
  if (info.Has(kTraitRow)) kl.has_weight = false;
  if (kl.reduction.row == RowCount::kGroupTokens)
    kl.reduction.row = RowCount::kTokens;
  if (kl.estimator != KlEstimator::kNone &&
      (loss.counts_padding || loss.measures_padding)) {
    kl.estimator = KlEstimator::kK3;
    kl.token_clamp = kl.value_clamp = LossSpec::kNoBound;
    kl.source = KlSpec().source;
    kl.has_own_ratio = kl.ratio_always_moves = kl.has_weight = false;
    if (!HasRatio(surrogate) || info.Has(kTraitRowRatio))
      kl.importance_weighted = kl.clamps_product = false;
  }
  return loss;
}

RatioSource RandomSource(Random& random) {
  if (random.Chance(0.1)) return RatioSource::kCurrentSelf;
  return random.Chance(0.5) ? RatioSource::kCurrentRollout
                            : RatioSource::kCurrentOld;
}

LossReduction RandomReduction(Random& random) {
  LossReduction reduction;
  reduction.count = AnyLossEnum(random, BatchCount::kGroups);
  reduction.row = AnyLossEnum(random, RowCount::kPerToken);
  reduction.scale = random.Uniform(0.2, 3);
  return reduction;
}

KlSpec RandomKl(Random& random, double spread) {
  KlSpec kl;
  kl.estimator = AnyLossEnum(random, KlEstimator::kAbs);
  if (kl.estimator == KlEstimator::kNone) return kl;
  kl.coefficient = random.Chance(0.1) ? 0.0 : random.Uniform(0.01, 2);
  if (random.Chance(0.3)) kl.token_clamp = spread * random.Uniform(0.5, 3);
  const bool square =
      kl.estimator == KlEstimator::kK2 || kl.estimator == KlEstimator::kK3;
  if (random.Chance(0.3))
    kl.value_clamp =
        (square ? spread * spread / 2 : spread) * random.Uniform(0.5, 3);
  kl.straight_through = random.Chance(0.3);
  kl.importance_weighted = random.Chance(0.3);
  if (kl.straight_through && random.Chance(0.5)) {
    kl.gradient_ratio_cap = random.Uniform(0.8, 3);
  }
  kl.over = AnyLossEnum(random, TokenSet::kKept);
  kl.reduction = RandomReduction(random);
  kl.has_own_ratio = random.Chance(0.4);
  if (kl.has_own_ratio) kl.ratio_source = RandomSource(random);
  kl.ratio_always_moves = kl.has_own_ratio && kl.coefficient > 0.5;
  kl.clamps_product = random.Chance(0.4);
  kl.has_weight = random.Chance(0.2);
  if (kl.estimator != KlEstimator::kK3 && random.Chance(0.3)) {
    kl.source = random.Chance(0.5) ? RatioSource::kCurrentRollout
                                   : RatioSource::kCurrentOld;
  }
  return kl;
}

// Shapes of the surrogates that have some.
void Reshape(uint64_t seed, LossSpec& loss) {
  const auto of = [seed](std::string_view name) { return Random(seed, name); };
  loss.tau_positive = of("tau_positive").Uniform(0.3, 3);
  loss.tau_negative = of("tau_negative").Uniform(0.3, 3);
  loss.k_positive = of("k_positive").Uniform(0.5, 3);
  loss.lambda_positive = of("lambda_positive").Uniform(0.5, 3);
  loss.k_negative = of("k_negative").Uniform(0.5, 3);
  Random lambda = of("lambda_negative");
  loss.lambda_negative = lambda.Chance(0.1) ? 0.0 : lambda.Uniform(0.5, 3);
  loss.covariance_fraction = of("covariance_fraction").Uniform(0.01, 0.5);
  loss.seed = of("seed").Seed() >> 2;
}

// A bound that some losses have.
double RandomBound(Random random, double chance, double bound) {
  return random.Chance(chance) ? bound : LossSpec::kNoBound;
}

}  // namespace

CorrectionSpec WithLoss(const LossSpec& loss) {
  CorrectionSpec spec;
  spec.drift_source = RatioSource::kCurrentOld;
  spec.loss = loss;
  return spec;
}

Row PolicyRow(const std::vector<float>& current,
              const std::vector<float>& advantages) {
  Row row = RowOf(std::vector<float>(current.size(), 0.0f));
  row[InputRole::kCurrent] = current;
  row[InputRole::kAdvantages] = advantages;
  return row;
}

std::vector<Surrogate> Surrogates() {
  std::vector<Surrogate> all;
  for (int s = 1; s < kNumSurrogates; ++s)
    all.push_back(static_cast<Surrogate>(s));
  return all;
}

bool HasTrait(Surrogate surrogate, SurrogateTrait trait) {
  return InfoOf(surrogate).Has(trait);
}

LossSpec BusyLoss(Surrogate surrogate, double spread) {
  LossSpec loss;
  loss.surrogate = surrogate;
  double clip = spread;
  switch (surrogate) {
    case Surrogate::kPpoClip:
      loss.dual_clip = 1 + 1.5 * spread;
      loss.ratio_cap = 1 + 2 * spread;
      break;
    case Surrogate::kDppoTv:
      clip = 0.1 * spread;
      loss.log_prob_form = true;
      loss.ratio_cap = 1 + 0.5 * spread;
      break;
    case Surrogate::kDppoKl:
      clip = 0.03 * spread * spread;
      break;
    case Surrogate::kDro:
      loss.beta = 0.7;
      break;
    case Surrogate::kKlCov:
    case Surrogate::kClipCov:
      loss.covariance_fraction = 0.1;
      loss.covariance_lower = 0.1;
      loss.covariance_upper = 2;
      break;
    case Surrogate::kNone:
    case Surrogate::kCispo:
    case Surrogate::kRolloutIs:
    case Surrogate::kGeoMean:
      break;
    case Surrogate::kVespo:
      loss.over = TokenSet::kOriginal;
      return loss;
    case Surrogate::kSapo:
    case Surrogate::kReinforce:
    case Surrogate::kCrossEntropy:
    case Surrogate::kImportanceSampling:
      return loss;
  }
  if (surrogate == Surrogate::kDro || surrogate == Surrogate::kKlCov)
    return loss;
  loss.clip_low = 0.8 * clip;
  loss.clip_high = clip;
  loss.peer_sums = true;
  return loss;
}

LossSpec RandomLoss(Random& random, double spread, int64_t longest,
                    std::optional<Surrogate> surrogate) {
  const uint64_t seed = random.Seed();
  const auto of = [seed](std::string_view name) { return Random(seed, name); };
  if (!surrogate) {
    Random any = of("surrogate");
    surrogate = AnyLossEnum(any, static_cast<Surrogate>(kNumSurrogates - 1));
  }
  if (surrogate == Surrogate::kNone) return {};
  Random level = of("level");
  const bool of_rows =
      InfoOf(*surrogate).Has(kTraitLevels) && level.Chance(0.5);
  // Means of rows are smaller than their terms.
  const double size = of_rows ? 0.3 * spread : spread;
  LossSpec loss = BusyLoss(*surrogate, size * of("size").Uniform(0.5, 2));
  if (of_rows)
    loss.level =
        level.Chance(0.5) ? LossLevel::kSequence : LossLevel::kSequenceToken;
  Random source = of("source"), metrics_source = of("metrics_source");
  loss.source = RandomSource(source);
  loss.metrics_source = RandomSource(metrics_source);
  Random lower = of("log_ratio_lower"), upper = of("log_ratio_upper");
  if (lower.Chance(0.3)) loss.log_ratio_lower = -size * lower.Uniform(0.5, 3);
  if (upper.Chance(0.3)) loss.log_ratio_upper = size * upper.Uniform(0.5, 3);
  loss.dual_clip = RandomBound(of("dual_clip"), 0.5, loss.dual_clip);
  loss.ratio_cap = RandomBound(of("ratio_cap"), 0.7, loss.ratio_cap);
  loss.clip_low = RandomBound(of("clip_low"), 0.7, loss.clip_low);
  loss.clip_high = RandomBound(of("clip_high"), 0.7, loss.clip_high);
  Reshape(seed, loss);
  Random over = of("over"), reduction = of("reduction"), kl = of("kl");
  loss.over = AnyLossEnum(over, TokenSet::kKept);
  loss.reduction = RandomReduction(reduction);
  loss.prescales_advantages = of("prescales_advantages").Chance(0.2);
  loss.averages_advantages = of("averages_advantages").Chance(0.5);
  if (of("padded_length").Chance(0.5)) loss.padded_length = longest + 5;
  loss.counts_padding =
      loss.padded_length > 0 && of("counts_padding").Chance(0.3);
  loss.measures_padding = of("measures_padding").Chance(0.2);
  loss.counts_dropped = of("counts_dropped").Chance(0.2);
  loss.kl = RandomKl(kl, spread);
  loss.applies_weight = of("applies_weight").Chance(0.8);
  loss.peer_sums = of("peer_sums").Chance(0.5);
  loss.allow_double_correction = true;
  return Legal(loss);
}

CorrectionSpec RandomLossSpec(Random& random, double spread, int64_t longest,
                              std::optional<Surrogate> surrogate) {
  for (;;) {
    CorrectionSpec spec = RandomSpec(random, spread);
    if (random.Chance(0.5)) spec.num_rules = spec.weight.after_rule = 0;
    if (random.Chance(0.5)) spec.weight = {};
    spec.loss = RandomLoss(random, spread, longest, surrogate);
    if (spec.loss.counts_padding) {
      // Padding has the row's weight as it was before both.
      spec.weight.normalize = false;
      for (RejectionRule& rule : spec.rules) rule.effect = Effect::kDrop;
    }
    if (Validate(spec).empty()) return spec;
  }
}

std::string Describe(const LossSpec& loss) {
  if (loss.surrogate == Surrogate::kNone) return "no loss";
  std::ostringstream text;
  text << Name(loss.surrogate) << ", level " << static_cast<int>(loss.level)
       << " of " << Name(loss.source) << " in [" << loss.log_ratio_lower << ", "
       << loss.log_ratio_upper << "], clip " << loss.clip_low << " "
       << loss.clip_high << ", dual " << loss.dual_clip << ", cap "
       << loss.ratio_cap << (loss.log_prob_form ? ", log-prob form" : "")
       << ", covariance " << loss.covariance_fraction << " in ["
       << loss.covariance_lower << ", " << loss.covariance_upper << "], over "
       << static_cast<int>(loss.over) << ", reduction "
       << static_cast<int>(loss.reduction.count) << " "
       << static_cast<int>(loss.reduction.row)
       << (loss.prescales_advantages ? ", prescaled" : "")
       << (loss.averages_advantages ? ", averaged" : "")
       << (loss.applies_weight ? "" : ", without weight")
       << (loss.counts_dropped ? ", of dropped tokens too" : "")
       << ", padded to " << loss.padded_length
       << (loss.counts_padding ? ", counted" : "")
       << (loss.measures_padding ? ", measured" : "");
  const KlSpec& kl = loss.kl;
  if (kl.estimator == KlEstimator::kNone) return text.str();
  text << "; kl " << static_cast<int>(kl.estimator) << " x " << kl.coefficient
       << ", clamps " << kl.token_clamp << " " << kl.value_clamp
       << (kl.source == KlSpec().source ? "" : Name(kl.source))
       << (kl.straight_through ? ", straight through" : "")
       << (kl.gradient_ratio_cap > 0.0 ? ", of the KL divergence" : "")
       << (kl.importance_weighted ? ", weighted" : "")
       << (kl.has_own_ratio ? " by its own ratio " : "")
       << (kl.has_own_ratio ? Name(kl.ratio_source) : "")
       << (kl.clamps_product ? ", product clamped" : "")
       << (kl.has_weight ? ", with the weight" : "") << ", over "
       << static_cast<int>(kl.over) << ", reduction "
       << static_cast<int>(kl.reduction.count) << " "
       << static_cast<int>(kl.reduction.row);
  return text.str();
}

void SetRandomGroups(Random& random, OwnedBatch& batch) {
  std::vector<int32_t> groups;
  for (int64_t i = 0; i < batch.num_sequences(); ++i)
    groups.push_back(static_cast<int32_t>(random.Integer(-1, 2)));
  batch.SetGroups(std::move(groups), 3);
}

}  // namespace counterweight::kernels
