#include "server/engine/codec_loss.h"

#include <string>

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
  LossDecoder(const MethodFacts& facts, const std::string& prefix,
              LossSpec* spec, Violations* violations)
      : facts_(facts),
        prefix_(prefix),
        fields_(prefix, violations),
        spec_(*spec),
        violations_(violations) {}

  FieldReader& fields() { return fields_; }

  void Decode(const v1::PolicyLoss& loss) {
    const SurrogateRow* row = FindSurrogate(loss.surrogate());
    if (row == nullptr) {
      fields_.Fail("policy_loss.surrogate",
                   "is required: PPO_CLIP, GSPO, CISPO, ...");
      return;
    }
    spec_ = LossSpec();
    spec_.surrogate = row->surrogate;
    spec_.level = row->level;
    spec_.seed = facts_.request.seed;
    spec_.allow_double_correction = loss.allow_double_correction();
    DecodeNumbers(loss, *row);
    DecodeSource(loss.ratio_source());
    spec_.reduction = DecodeReduction(loss, facts_, prefix_, violations_);
    CheckAggregation(loss);
    if (row->surrogate == Surrogate::kVespo) {
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
  // Takes a number that the surrogate reads, refuses one that it does not.
  void Take(bool has, double value, const char* field, bool reads, double* to) {
    if (!has) return;
    const std::string name = std::string("policy_loss.") + field;
    if (reads) {
      *to = fields_.Number(has, value, *to, name);
    } else {
      fields_.Fail(name, "is not read by this surrogate; leave it out");
    }
  }

  void DecodeNumbers(const v1::PolicyLoss& loss, const SurrogateRow& row) {
    const auto reads = [&](kernels::SurrogateNumbers group) {
      return row.Reads(group);
    };
    if (reads(kernels::kNumbersClip) &&
        (!loss.has_clip_low() || !loss.has_clip_high())) {
      fields_.Fail(loss.has_clip_low() ? "policy_loss.clip_high"
                                       : "policy_loss.clip_low",
                   "this surrogate needs clip_low and clip_high");
    }
    Take(loss.has_clip_low(), loss.clip_low(), "clip_low",
         reads(kernels::kNumbersClip), &spec_.clip_low);
    Take(loss.has_clip_high(), loss.clip_high(), "clip_high",
         reads(kernels::kNumbersClip), &spec_.clip_high);
    Take(loss.has_dual_clip(), loss.dual_clip(), "dual_clip",
         reads(kernels::kNumbersDualClip), &spec_.dual_clip);
    Take(loss.has_ratio_cap(), loss.ratio_cap(), "ratio_cap",
         reads(kernels::kNumbersRatioCap), &spec_.ratio_cap);
    Take(loss.has_log_ratio_clamp(), loss.log_ratio_clamp(), "log_ratio_clamp",
         reads(kernels::kNumbersLogRatioClamp), &spec_.log_ratio_upper);
    spec_.log_ratio_lower = -spec_.log_ratio_upper;
    Take(loss.has_tau_positive(), loss.tau_positive(), "tau_positive",
         reads(kernels::kNumbersTau), &spec_.tau_positive);
    Take(loss.has_tau_negative(), loss.tau_negative(), "tau_negative",
         reads(kernels::kNumbersTau), &spec_.tau_negative);
    Take(loss.has_k_positive(), loss.k_positive(), "k_positive",
         reads(kernels::kNumbersShape), &spec_.k_positive);
    Take(loss.has_lambda_positive(), loss.lambda_positive(), "lambda_positive",
         reads(kernels::kNumbersShape), &spec_.lambda_positive);
    Take(loss.has_k_negative(), loss.k_negative(), "k_negative",
         reads(kernels::kNumbersShape), &spec_.k_negative);
    Take(loss.has_lambda_negative(), loss.lambda_negative(), "lambda_negative",
         reads(kernels::kNumbersShape), &spec_.lambda_negative);
    Take(loss.has_beta(), loss.beta(), "beta", reads(kernels::kNumbersBeta),
         &spec_.beta);
    Take(loss.has_covariance_fraction(), loss.covariance_fraction(),
         "covariance_fraction", reads(kernels::kNumbersFraction),
         &spec_.covariance_fraction);
    Take(loss.has_covariance_lower(), loss.covariance_lower(),
         "covariance_lower", reads(kernels::kNumbersBounds),
         &spec_.covariance_lower);
    Take(loss.has_covariance_upper(), loss.covariance_upper(),
         "covariance_upper", reads(kernels::kNumbersBounds),
         &spec_.covariance_upper);
    Take(loss.has_covariance_kl_weight(), loss.covariance_kl_weight(),
         "covariance_kl_weight", reads(kernels::kNumbersKlWeight),
         &spec_.covariance_kl_weight);
    // The cap belongs to the form whose ratio is detached.
    const bool dppo = spec_.surrogate == Surrogate::kDppoTv ||
                      spec_.surrogate == Surrogate::kDppoKl;
    spec_.log_prob_form = dppo && loss.has_ratio_cap();
  }

  void DecodeSource(v1::RatioSource source) {
    const RequestFacts& present = facts_.request;
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
    if (loss.surrogate() == v1::SURROGATE_GEO_MEAN &&
        loss.aggregation() != v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN) {
      fields_.Fail("policy_loss.aggregation",
                   "GEO_MEAN has one value per sequence: SEQ_MEAN_TOKEN_MEAN");
    }
  }

  const MethodFacts& facts_;
  const std::string& prefix_;
  FieldReader fields_;
  LossSpec& spec_;
  Violations* const violations_;
};

}  // namespace

void DecodeLoss(const v1::PolicyLoss* loss, const v1::KlPenalty* kl,
                const MethodFacts& facts, const std::string& prefix,
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
