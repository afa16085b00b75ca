#include "server/engine/codec_loss.h"

#include <optional>
#include <string>

#include "kernels/surrogates/list.h"
#include "server/engine/codec_enums.h"
#include "server/engine/codec_fields.h"
#include "server/engine/codec_reduction.h"
#include "server/engine/codec_surrogates.h"

namespace counterweight::server {
namespace {

using kernels::LossSpec;
using kernels::RatioSource;
using kernels::Surrogate;

class LossDecoder {
 public:
  LossDecoder(const RequestFacts& facts, const std::string& prefix,
              LossSpec* spec, Violations* violations)
      : facts_(facts),
        prefix_(prefix),
        fields_(prefix, violations),
        spec_(*spec),
        violations_(violations) {}

  FieldReader& fields() { return fields_; }

  void Decode(const v1::PolicyLoss& loss) {
    const std::optional<SurrogateRow> row = FindSurrogate(loss.surrogate());
    if (!row) {
      fields_.Fail("policy_loss.surrogate",
                   "is required: PPO_CLIP, GSPO, CISPO, ...");
      return;
    }
    spec_ = LossSpec();
    spec_.surrogate = row->surrogate;
    spec_.level = row->level;
    spec_.seed = facts_.seed;
    spec_.allow_double_correction = loss.allow_double_correction();
    spec_.averages_advantages = loss.average_advantages();
    DecodeNumbers(loss, *row);
    DecodeSource(loss.ratio_source());
    spec_.reduction = DecodeReduction(loss, facts_, prefix_, violations_);
    CheckAggregation(loss);
    if (row->info.Has(kernels::kTraitOverOriginal)) {
      spec_.over = kernels::TokenSet::kOriginal;
    }
  }

  void Decode(const v1::KlPenalty& kl) {
    kernels::KlSpec& spec = spec_.kl;
    spec.estimator =
        fields_.Required(kKlEstimators, kl.estimator(), "kl_penalty.estimator",
                         kernels::KlEstimator::kNone);
    spec.coefficient = kl.coefficient();
    if (kl.has_token_clamp()) spec.token_clamp = kl.token_clamp();
    if (kl.has_value_clamp()) spec.value_clamp = kl.value_clamp();
    spec.straight_through = kl.straight_through();
    spec.importance_weighted = kl.importance_weighted();
    spec.reduction = spec_.reduction;
  }

 private:
  // Reads the surrogate's numbers, and refuses others.
  void DecodeNumbers(const v1::PolicyLoss& loss, const SurrogateRow& row) {
    for (const kernels::LossParameterInfo& info : kernels::kLossParameters) {
      const std::string name = std::string("policy_loss.") + info.name;
      const bool reads = row.info.Reads(info.parameter);
      const std::optional<double> value = NumberOf(loss, info.parameter);
      double& number = spec_.*info.member;
      if (value && reads) {
        number = fields_.Number(true, *value, number, name);
      } else if (value) {
        fields_.Fail(name, "is not read by this surrogate; leave it out");
      } else if (reads && info.is_required) {
        fields_.Fail(name, "this surrogate needs clip_low and clip_high");
      }
    }
    spec_.log_ratio_lower = -spec_.log_ratio_upper;
    // A cap selects the form with a detached ratio.
    spec_.log_prob_form =
        row.info.Has(kernels::kTraitDivergence) && loss.has_ratio_cap();
  }

  void DecodeSource(v1::RatioSource source) {
    const RequestFacts& present = facts_;
    RatioSource chosen =
        present.has_old_log_probs || !present.has_rollout_log_probs
            ? RatioSource::kCurrentOld
            : RatioSource::kCurrentRollout;
    if (source != v1::RATIO_SOURCE_UNSPECIFIED) {
      const auto said = FromWire(kRatioSources, source);
      if (said && *said != RatioSource::kOldRollout) {
        chosen = *said;
      } else {
        fields_.Fail(
            "policy_loss.ratio_source",
            "must be CURRENT_OLD or CURRENT_ROLLOUT: the gradient is that of "
            "current_log_probs");
      }
    }
    spec_.source = chosen;
    const bool there = chosen == RatioSource::kCurrentOld
                           ? present.has_old_log_probs
                           : present.has_rollout_log_probs;
    spec_.metrics_source = there || kernels::HasRatio(spec_.surrogate)
                               ? chosen
                               : RatioSource::kCurrentSelf;
  }

  void CheckAggregation(const v1::PolicyLoss& loss) {
    if (loss.has_norm_length() &&
        loss.aggregation() != v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM) {
      fields_.Fail("policy_loss.norm_length",
                   "is for SEQ_MEAN_TOKEN_SUM_NORM only");
    }
    if (loss.surrogate() == v1::SURROGATE_LUSPO &&
        loss.aggregation() != v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM) {
      fields_.Fail("policy_loss.aggregation",
                   "LUSPO is GSPO added up by SEQ_MEAN_TOKEN_SUM");
    }
    if (kernels::InfoOf(spec_.surrogate).Has(kernels::kTraitRowRatio) &&
        loss.aggregation() != v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN) {
      fields_.Fail("policy_loss.aggregation",
                   "GEO_MEAN has one value per sequence: SEQ_MEAN_TOKEN_MEAN");
    }
  }

  const RequestFacts& facts_;
  const std::string& prefix_;
  FieldReader fields_;
  LossSpec& spec_;
  Violations* const violations_;
};

}  // namespace

void DecodeLoss(const v1::PolicyLoss* loss, const v1::KlPenalty* kl,
                const RequestFacts& facts, const std::string& prefix,
                kernels::CorrectionSpec* spec, Violations* violations) {
  LossDecoder decoder(facts, prefix, &spec->loss, violations);
  if (loss != nullptr) decoder.Decode(*loss);
  if (kl == nullptr) return;
  if (spec->loss.surrogate == Surrogate::kNone) {
    decoder.fields().Fail("kl_penalty",
                          "needs a policy_loss to be a penalty of");
    return;
  }
  decoder.Decode(*kl);
}

}  // namespace counterweight::server
