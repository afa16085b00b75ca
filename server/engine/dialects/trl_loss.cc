#include "server/engine/dialects/trl_loss.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "server/engine/dialects/releases.h"
#include "server/engine/dialects/trl_correction.h"

namespace counterweight::server {
namespace {

using google::protobuf::Value;
using kernels::BatchCount;
using kernels::Level;
using kernels::LossLevel;
using kernels::LossReduction;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using kernels::TokenSet;

constexpr std::string_view kImportanceLevel = "importance_sampling_level";

// In the order of TrlLossType.
constexpr std::string_view kTypes[] = {"grpo",  "bnpo",  "dr_grpo", "dapo",
                                       "luspo", "cispo", "sapo",    "vespo"};
constexpr std::string_view kImportanceLevels[] = {"token", "sequence"};

// These values exist in trainers of trl.experimental, where other fields have
// other meanings too.
constexpr std::string_view kGmpoHint =
    " GMPO is a trainer of trl.experimental, with a loss of its own.";
constexpr std::string_view kGspoTokenHint =
    " GSPO-token is a trainer of trl.experimental, with reductions of its own.";

// Returns `hint` if the block has `name` at `key`, else nothing.
std::string_view HintFor(const BlockReader& reader, std::string_view key,
                         std::string_view name, std::string_view hint) {
  const Value* value = reader.Find(key);
  return value != nullptr && value->string_value() == name ? hint : "";
}

constexpr NumberRange kFinite{.lowest = -kLargestDouble,
                              .highest = kLargestDouble};
constexpr NumberRange kFinitePositive{
    .lowest = 0.0, .above = true, .highest = kLargestDouble};
constexpr NumberRange kFiniteNonNegative{.lowest = 0.0,
                                         .highest = kLargestDouble};

// Ranges apply to numbers that the loss reads: TRL itself computes with any
// numbers, even if they flip the loss's sign.
void ReadNumbers(const BlockReader& reader, const RequestFacts& facts,
                 TrlLoss* loss) {
  const bool wants_loss = facts.wants_loss;
  const auto read = [&](std::string_view key, bool used,
                        const NumberRange& range, double* number) {
    *number = reader.ReadNumber(key, *number,
                                used && wants_loss ? range : kAnyNumber);
  };
  const bool clips = loss->clips_ratio();
  const bool caps = loss->type == TrlLossType::kCispo;
  const bool has_epsilon_high = !reader.IsNull("epsilon_high");
  read("epsilon", clips || (caps && !has_epsilon_high), kNonNegative,
       &loss->epsilon);
  loss->epsilon_high = loss->epsilon;
  if (has_epsilon_high) {
    read("epsilon_high", clips || caps, kNonNegative, &loss->epsilon_high);
  }
  if (!reader.IsNull("delta")) {
    read("delta", clips, kPositive, &loss->delta);
  }
  read("beta", true, kFiniteNonNegative, &loss->beta);
  loss->use_bias_correction_kl = reader.ReadBool(
      "use_bias_correction_kl", facts.IsSince(kTrlKlCorrectedByDefault));
  const bool is_sapo = loss->type == TrlLossType::kSapo;
  read("sapo_temperature_pos", is_sapo, kFinitePositive,
       &loss->sapo_temperature_pos);
  read("sapo_temperature_neg", is_sapo, kFinitePositive,
       &loss->sapo_temperature_neg);
  const bool is_vespo = loss->type == TrlLossType::kVespo;
  read("vespo_k_pos", is_vespo, kFinite, &loss->vespo_k_pos);
  read("vespo_lambda_pos", is_vespo, kFinite, &loss->vespo_lambda_pos);
  read("vespo_k_neg", is_vespo, kFinite, &loss->vespo_k_neg);
  read("vespo_lambda_neg", is_vespo, kFinite, &loss->vespo_lambda_neg);
}

// The order is GRPOConfig's: the steps, else the generation batch divided by
// the batch of all processes, else the accumulation.
void ReadStepsPerGeneration(const BlockReader& reader, TrlLoss* loss) {
  constexpr std::string_view kSteps = "steps_per_generation";
  constexpr std::string_view kBatch = "generation_batch_size";
  const int64_t per_device = reader.ReadCount("per_device_train_batch_size", 8);
  loss->steps_per_generation = loss->gradient_accumulation_steps;
  if (!reader.IsNull(kSteps)) {
    loss->steps_per_generation = reader.ReadCount(kSteps, 1);
  } else if (!reader.IsNull(kBatch)) {
    const int64_t batch = reader.ReadCount(kBatch, per_device);
    // Divides twice, because the product of two counts may overflow.
    const int64_t shares = batch / per_device;
    if (batch % per_device != 0 || shares % loss->num_processes != 0) {
      reader.Violate(kBatch,
                     Concat(kBatch, " (", std::to_string(batch),
                            ") must be divisible by the global batch size, "
                            "per_device_train_batch_size * num_processes."));
      return;
    }
    loss->steps_per_generation = shares / loss->num_processes;
  }
}

void ReadCounts(const BlockReader& reader, const RequestFacts& facts,
                TrlLoss* loss) {
  if (!facts.IsSince(kTrlCompletionOf512)) loss->max_completion_length = 256;
  const auto read = [&](std::string_view key, int64_t* number) {
    *number = reader.ReadCount(key, *number);
  };
  // Null is a legal value, but dr_grpo divides by it.
  if (loss->type == TrlLossType::kDrGrpo ||
      !reader.IsNull("max_completion_length")) {
    read("max_completion_length", &loss->max_completion_length);
  }
  read("gradient_accumulation_steps", &loss->gradient_accumulation_steps);
  read("num_processes", &loss->num_processes);
  ReadStepsPerGeneration(reader, loss);
  loss->num_items_in_batch =
      reader.ReadOptionalNumber("num_items_in_batch", kFiniteNonNegative);
}

void WarnOfLevel(const BlockReader& reader, const TrlLoss& loss,
                 std::vector<std::string>* warnings) {
  const auto warn = [&](std::string_view advice) {
    warnings->push_back(Concat(reader.Path(kImportanceLevel), ": ", advice));
  };
  switch (loss.type) {
    case TrlLossType::kBnpo:
    case TrlLossType::kDrGrpo:
    case TrlLossType::kDapo:
    case TrlLossType::kCispo:
      if (!loss.sequence_level) return;
      return warn(Concat("loss_type '", Name(loss.type),
                         "' adds up tokens, so that with 'sequence' a row's "
                         "one ratio counts once per token; TRL expects "
                         "loss_type 'grpo' or 'luspo' there."));
    case TrlLossType::kLuspo:
      if (loss.sequence_level || !loss.luspo_counts_padding) return;
      return warn(
          "loss_type 'luspo' is meant for 'sequence'; with 'token' it includes "
          "padding, as TRL does.");
    case TrlLossType::kVespo:
      if (!loss.sequence_level) return;
      return warn(
          "loss_type 'vespo' makes a sequence weight of its own; TRL expects "
          "'token'.");
    case TrlLossType::kGrpo:
    case TrlLossType::kSapo:
      return;
  }
}

// True if TRL's per-token loss has one number per row before padding.
bool IsOnePerRow(const TrlLoss& loss, const kernels::WeightSpec& weight) {
  return loss.sequence_level && weight.level != Level::kToken &&
         loss.beta == 0.0;
}

void WarnOfReleases(const BlockReader& reader, const TrlLoss& loss,
                    bool is_one_per_row, std::vector<std::string>* warnings) {
  const auto warn = [&](std::string_view key, const Release& since,
                        std::string_view difference) {
    warnings->push_back(Concat(
        reader.Path(key), ": releases of TRL differ: since ", ToString(since),
        " ", difference, " Name the release to be sure."));
  };
  if (loss.divides_by_items() &&
      loss.steps_per_generation != loss.gradient_accumulation_steps) {
    warn("steps_per_generation", kTrlStepsPerGeneration,
         "num_items_in_batch is multiplied by gradient_accumulation_steps / "
         "steps_per_generation, as here; before, steps_per_generation was not "
         "read.");
  }
  if (loss.type == TrlLossType::kLuspo && !is_one_per_row) {
    warn("loss_type", kTrlLuspoByMask,
         "'luspo' leaves masked positions out, as here; before, it counted "
         "them.");
  }
  if (loss.beta != 0.0 && reader.Find("use_bias_correction_kl") == nullptr) {
    warn("use_bias_correction_kl", kTrlKlCorrectedByDefault,
         "it is true by default, as here; before, false.");
  }
  if (loss.type == TrlLossType::kDrGrpo &&
      reader.Find("max_completion_length") == nullptr) {
    warn("max_completion_length", kTrlCompletionOf512,
         "it is 512 by default, as here; before, 256.");
  }
}

void SetSurrogate(const TrlLoss& loss, LossSpec* spec) {
  switch (loss.type) {
    case TrlLossType::kGrpo:
    case TrlLossType::kBnpo:
    case TrlLossType::kDrGrpo:
    case TrlLossType::kDapo:
    case TrlLossType::kLuspo:
      spec->surrogate = Surrogate::kPpoClip;
      spec->clip_low = loss.epsilon;
      spec->clip_high = loss.epsilon_high;
      spec->ratio_cap = loss.delta;
      return;
    case TrlLossType::kCispo:
      spec->surrogate = Surrogate::kCispo;
      spec->clip_high = loss.epsilon_high - 1.0;
      return;
    case TrlLossType::kSapo:
      spec->surrogate = Surrogate::kSapo;
      spec->tau_positive = loss.sapo_temperature_pos;
      spec->tau_negative = loss.sapo_temperature_neg;
      return;
    case TrlLossType::kVespo:
      spec->surrogate = Surrogate::kVespo;
      spec->k_positive = loss.vespo_k_pos;
      spec->lambda_positive = loss.vespo_lambda_pos;
      spec->k_negative = loss.vespo_k_neg;
      spec->lambda_negative = loss.vespo_lambda_neg;
      return;
  }
}

LossReduction MakeReduction(const TrlLoss& loss, bool counts_padding,
                            const RequestFacts& facts) {
  const double steps = static_cast<double>(loss.gradient_accumulation_steps);
  const double processes = static_cast<double>(loss.num_processes);
  switch (loss.type) {
    case TrlLossType::kGrpo:
    case TrlLossType::kSapo:
      return {BatchCount::kRows, RowCount::kTokens, 1.0 / steps};
    case TrlLossType::kBnpo:
      return {BatchCount::kTokens, RowCount::kOne, 1.0 / steps};
    case TrlLossType::kDrGrpo:
      return {BatchCount::kRows, RowCount::kOne,
              1.0 / (static_cast<double>(loss.max_completion_length) * steps)};
    case TrlLossType::kLuspo:
      // A row's number times its tokens is the sum over them.
      if (!counts_padding) {
        return {BatchCount::kRows, RowCount::kOne, 1.0 / steps};
      }
      return {BatchCount::kRows, RowCount::kPerToken,
              1.0 / (static_cast<double>(
                         std::max<int64_t>(facts.padded_length, 1)) *
                     steps)};
    case TrlLossType::kDapo:
    case TrlLossType::kCispo:
    case TrlLossType::kVespo: {
      // The items belong to a generation; a step is a part of it.
      const double share =
          facts.IsSince(kTrlStepsPerGeneration)
              ? static_cast<double>(loss.steps_per_generation) / steps
              : 1.0;
      if (!loss.num_items_in_batch) {
        return {BatchCount::kTokens, RowCount::kOne, processes * share};
      }
      return {BatchCount::kOne, RowCount::kOne,
              processes * share / std::max(*loss.num_items_in_batch, 1.0)};
    }
  }
  return {};
}

}  // namespace

std::string_view Name(TrlLossType type) {
  return kTypes[static_cast<size_t>(type)];
}

TrlLoss ReadTrlLoss(const BlockReader& reader,
                    const kernels::WeightSpec& weight,
                    const RequestFacts& facts,
                    std::vector<std::string>* warnings) {
  TrlLoss loss;
  const auto type =
      reader.ReadName("loss_type", Name(loss.type), kTypes,
                      HintFor(reader, "loss_type", "gmpo", kGmpoHint));
  if (type) loss.type = static_cast<TrlLossType>(*type);
  loss.sequence_level =
      reader.ReadName(kImportanceLevel, kImportanceLevels[0], kImportanceLevels,
                      HintFor(reader, kImportanceLevel, "sequence_token",
                              kGspoTokenHint)) == 1;
  loss.luspo_counts_padding = !facts.IsSince(kTrlLuspoByMask);
  ReadNumbers(reader, facts, &loss);
  ReadCounts(reader, facts, &loss);
  if (loss.type == TrlLossType::kVespo && weight.level != Level::kNone &&
      weight.level != Level::kToken) {
    reader.Violate(
        kTrlMode,
        Concat("VESPO loss requires ", kTrlMode,
               " to be either 'token_truncate' or 'token_mask', got '",
               reader.ReadString(kTrlMode, kTrlDefaultMode), "'."));
  }
  if (!facts.wants_loss) return loss;
  if (loss.type == TrlLossType::kVespo && loss.sequence_level &&
      loss.use_bias_correction_kl && loss.beta != 0.0) {
    reader.Violate(
        kImportanceLevel,
        "'sequence' gives loss_type 'vespo' nothing but the ratio of "
        "use_bias_correction_kl, which this server has for 'token' "
        "only.");
  }
  WarnOfLevel(reader, loss, warnings);
  if (!facts.asked.is_named) {
    WarnOfReleases(reader, loss, IsOnePerRow(loss, weight), warnings);
  }
  return loss;
}

CountsUse TrlCountsUse(const BlockReader& reader, const TrlLoss& loss) {
  CountsUse use;
  if (!loss.divides_by_items()) {
    use.refusal = Concat("is not read by loss_type '", Name(loss.type),
                         "', which averages over each process's own rows or "
                         "tokens in TRL; leave it out");
  }
  if (!reader.IsNull("num_processes")) {
    use.given_ranks = reader.Path("num_processes");
  }
  if (loss.num_items_in_batch) {
    use.given_count = reader.Path("num_items_in_batch");
  }
  return use;
}

LossSpec MakeTrlLossSpec(const TrlLoss& loss, const kernels::WeightSpec& weight,
                         const RequestFacts& facts) {
  LossSpec spec;
  SetSurrogate(loss, &spec);
  const bool is_vespo = loss.type == TrlLossType::kVespo;
  if (loss.sequence_level && !is_vespo) spec.level = LossLevel::kSequence;
  // Without old log-probs TRL takes the policy's own, detached.
  spec.source = facts.has_old_log_probs ? RatioSource::kCurrentOld
                                        : RatioSource::kCurrentSelf;
  spec.metrics_source = spec.source;
  spec.over = TokenSet::kOriginal;
  spec.padded_length = facts.padded_length;
  spec.counts_padding = loss.type == TrlLossType::kLuspo &&
                        loss.luspo_counts_padding && !IsOnePerRow(loss, weight);
  // For metrics: with a padded width of 1 all rows count, and VESPO needs the
  // advantages of empty rows.
  spec.measures_padding = facts.padded_length == 1 || is_vespo;
  spec.reduction = MakeReduction(loss, spec.counts_padding, facts);
  if (loss.beta != 0.0) {
    spec.kl.estimator = kernels::KlEstimator::kK3;
    spec.kl.coefficient = loss.beta;
    spec.kl.importance_weighted = loss.use_bias_correction_kl;
    spec.kl.over = TokenSet::kOriginal;
    spec.kl.reduction = spec.reduction;
  }
  // Ratio and weight correct different drifts, or the same one twice, as in
  // TRL.
  spec.allow_double_correction = true;
  return spec;
}

}  // namespace counterweight::server
