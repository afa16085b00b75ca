#include "server/engine/dialects/tinker.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using kernels::LossLevel;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::Surrogate;

constexpr std::string_view kLossFn = "loss_fn";
constexpr std::string_view kLossFnConfig = "loss_fn_config";
constexpr std::string_view kLowThreshold = "clip_low_threshold";
constexpr std::string_view kHighThreshold = "clip_high_threshold";
constexpr std::string_view kTinkerThresholds[] = {kLowThreshold,
                                                  kHighThreshold};
constexpr std::string_view kTinkerBeta[] = {"beta"};

struct TinkerLoss {
  std::string_view name;
  Surrogate surrogate;
  LossLevel level;
  std::span<const std::string_view> fields;
  // Public servers agree on the defaults; otherwise the numbers are required.
  bool has_defaults;
};

constexpr TinkerLoss kTinkerLosses[] = {
    {"importance_sampling",
     Surrogate::kImportanceSampling,
     LossLevel::kToken,
     {},
     true},
    {"ppo", Surrogate::kPpoClip, LossLevel::kToken, kTinkerThresholds, true},
    {"cispo", Surrogate::kCispo, LossLevel::kToken, kTinkerThresholds, false},
    {"dro", Surrogate::kDro, LossLevel::kToken, kTinkerBeta, false},
    {"gspo", Surrogate::kPpoClip, LossLevel::kSequenceToken, kTinkerThresholds,
     true},
};

// Returns null and a violation for an unknown loss.
const TinkerLoss* ReadTinkerLoss(const BlockReader& reader) {
  std::vector<std::string_view> names;
  for (const TinkerLoss& loss : kTinkerLosses) names.push_back(loss.name);
  if (reader.IsNull(kLossFn)) {
    reader.Violate(
        kLossFn, Concat("loss_fn is required, one of ", JoinNames(names), "."));
    return nullptr;
  }
  const auto index = reader.ReadName(
      kLossFn, names[0], names,
      " stable_reinforce has no public formula, and custom losses are code.");
  return index ? &kTinkerLosses[*index] : nullptr;
}

void RequireNumbers(const BlockReader& config, const TinkerLoss& loss) {
  if (loss.has_defaults) return;
  for (const std::string_view field : loss.fields) {
    if (config.Find(field) != nullptr) continue;
    config.Violate(field,
                   Concat(field, " is required with loss_fn '", loss.name,
                          "': public servers have different defaults."));
  }
}

void ReadTinkerThresholds(const BlockReader& config, LossSpec* loss) {
  constexpr NumberRange kAtMostOne{.lowest = 0.0, .highest = 1.0};
  constexpr NumberRange kAtLeastOne{.lowest = 1.0};
  loss->clip_low = 1.0 - config.ReadNumber(kLowThreshold, 0.8, kAtMostOne);
  loss->clip_high = config.ReadNumber(kHighThreshold, 1.2, kAtLeastOne) - 1.0;
}

void ReadTinkerConfig(const Struct& block, const BlockReader& reader,
                      const TinkerLoss& of, bool ignore_unknown_fields,
                      LossSpec* loss, Translation* translation) {
  const BlockReader config(block, reader.Path(kLossFnConfig),
                           &translation->violations);
  config.CheckKeys(
      of.fields, ignore_unknown_fields,
      [&](std::string_view) {
        return Concat("loss_fn '", of.name, "' takes ",
                      of.fields.empty() ? "none" : JoinNames(of.fields));
      },
      &translation->warnings);
  RequireNumbers(config, of);
  if (of.surrogate == Surrogate::kDro) {
    loss->beta = config.ReadNumber(kTinkerBeta[0], 1.0, kPositive);
  } else if (!of.fields.empty()) {
    ReadTinkerThresholds(config, loss);
  }
}

}  // namespace

Translation TranslateTinker(const Struct& block, bool ignore_unknown_fields,
                            const RequestFacts& facts) {
  Translation translation;
  const BlockReader reader(block, "method.dialect.block",
                           &translation.violations);
  reader.CheckKeys(
      kTinkerFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, &translation.warnings);
  const Struct* config = reader.ReadStruct(kLossFnConfig);
  LossSpec loss;
  if (const TinkerLoss* of = ReadTinkerLoss(reader)) {
    loss.surrogate = of->surrogate;
    loss.level = of->level;
    loss.source = RatioSource::kCurrentRollout;
    loss.metrics_source = RatioSource::kCurrentRollout;
    loss.over = kernels::TokenSet::kOriginal;
    loss.reduction = {kernels::BatchCount::kOne, kernels::RowCount::kOne, 1.0};
    ReadTinkerConfig(config == nullptr ? Struct::default_instance() : *config,
                     reader, *of, ignore_unknown_fields, &loss, &translation);
  }
  translation.spec.drift_source = DriftSource(facts);
  WarnOfDriftAlone(facts.has_rollout_log_probs, facts.wants_loss,
                   "rollout_log_probs", &translation.warnings);
  WarnOfDriftAlone(facts.has_old_log_probs, false, "old_log_probs",
                   &translation.warnings);
  translation.report = [has_loss = facts.wants_loss](
                           const kernels::BatchSums& sums, MetricMap* metrics,
                           Violations*) {
    if (has_loss) (*metrics)["loss:sum"] = sums.loss.total;
  };
  if (!facts.wants_loss) return translation;
  constexpr std::string_view kReason = "the loss is computed from it";
  RequireTensor(facts.has_rollout_log_probs, "rollout_log_probs", kReason,
                &translation.violations);
  RequireTensor(facts.has_current_log_probs, "current_log_probs", kReason,
                &translation.violations);
  RequireTensor(facts.has_advantages, "advantages", kReason,
                &translation.violations);
  translation.spec.loss = loss;
  return translation;
}

}  // namespace counterweight::server
