#include "server/engine/dialects/trl_correction.h"

#include <algorithm>
#include <limits>
#include <span>

#include "kernels/float_bounds.h"

namespace counterweight::server {
namespace {

using google::protobuf::Value;
using kernels::Bound;
using kernels::kUnbounded;
using kernels::Level;

constexpr std::string_view kClipMax = "vllm_importance_sampling_clip_max";
constexpr std::string_view kClipMin = "vllm_importance_sampling_clip_min";
constexpr std::string_view kCap = "vllm_importance_sampling_cap";
constexpr std::string_view kCorrection = "vllm_importance_sampling_correction";

struct Mode {
  Level level;
  Bound bound;
};

// The last one is that of TRL's open pull request 4891.
constexpr std::string_view kModeNames[] = {"token_truncate", "token_mask",
                                           "sequence_truncate", kTrlDefaultMode,
                                           "sequence_geometric_mean_mask"};
constexpr Mode kModes[] = {{Level::kToken, Bound::kTruncate},
                           {Level::kToken, Bound::kMask},
                           {Level::kSequence, Bound::kTruncate},
                           {Level::kSequence, Bound::kMask},
                           {Level::kGeometric, Bound::kMask}};

// Absent: None.
struct Clips {
  std::optional<double> min;
  std::optional<double> max = 3.0;
  std::string_view max_key = kClipMax;
};

// Checks them even if unused, like TRL.
Clips ReadClips(const BlockReader& reader, std::vector<std::string>* warnings) {
  Clips clips;
  if (reader.Find(kClipMax) != nullptr) {
    clips.max = reader.ReadOptionalNumber(kClipMax);
  }
  if (const auto cap = reader.ReadOptionalNumber(kCap)) {
    clips.max = cap;
    clips.max_key = kCap;
    warnings->push_back(Concat(reader.Path(kCap),
                               " is deprecated in TRL; it overwrites ",
                               kClipMax, "."));
  }
  clips.min = reader.ReadOptionalNumber(kClipMin);
  if (clips.min && clips.max && *clips.min >= *clips.max) {
    reader.Violate(kClipMin, Concat(kClipMin, " (", FormatNumber(*clips.min),
                                    ") must be less than ", clips.max_key, " (",
                                    FormatNumber(*clips.max), ")."));
  }
  return clips;
}

// TRL's own check of a *_truncate mode depends only on the correction's switch,
// not on tensors.
void CheckTruncation(const BlockReader& reader, const Clips& clips) {
  const Value* mode = reader.Find(kTrlMode);
  if (mode == nullptr || !mode->string_value().ends_with("_truncate") ||
      clips.min || clips.max) {
    return;
  }
  reader.Violate(kClipMax, Concat("At least one of ", kClipMin, " or ",
                                  kClipMax, " must be set when ", kTrlMode,
                                  " is a *_truncate mode."));
}

kernels::WeightSpec MakeWeight(const BlockReader& reader, const Mode& mode,
                               const Clips& clips) {
  // TRL computes with these values.
  if (clips.max && !kernels::IsAboveZero(*clips.max)) {
    reader.Violate(
        clips.max_key,
        Concat(clips.max_key, " must be > 0, got ", FormatNumber(*clips.max),
               ": every weight would be 0 or negative."));
  }
  if (clips.min && *clips.min > std::numeric_limits<float>::max()) {
    reader.Violate(kClipMin, Concat(kClipMin,
                                    " must be within float32's range: every "
                                    "weight would be 0 or infinite."));
  }
  kernels::WeightSpec weight;
  weight.level = mode.level;
  weight.lower = std::max(clips.min.value_or(0.0), 0.0);
  weight.upper = clips.max.value_or(kUnbounded);
  const bool bounded = weight.lower > 0.0 || weight.upper < kUnbounded;
  weight.bound = bounded ? mode.bound : Bound::kNone;
  return weight;
}

}  // namespace

TrlCorrection ReadTrlCorrection(const BlockReader& reader,
                                const RequestFacts& facts,
                                std::vector<std::string>* warnings) {
  TrlCorrection correction;
  correction.off_policy_mask_threshold =
      reader.ReadOptionalNumber(kTrlOffPolicyMask);
  const Clips clips = ReadClips(reader, warnings);
  const bool enabled = reader.ReadBool(kCorrection, true);
  const bool use_vllm =
      reader.ReadBool("use_vllm", facts.has_rollout_log_probs);
  if (!enabled) return correction;
  CheckTruncation(reader, clips);
  if (!use_vllm) return correction;
  correction.needs_rollout = true;
  const auto mode = reader.ReadName(kTrlMode, kTrlDefaultMode, kModeNames);
  if (mode) correction.weight = MakeWeight(reader, kModes[*mode], clips);
  return correction;
}

kernels::RejectionRule TrlOffPolicyMask(double threshold,
                                        kernels::RatioSource source) {
  kernels::RejectionRule rule;
  rule.source = source;
  rule.aggregation = kernels::Aggregation::kMean;
  rule.condition = kernels::Condition::kNegativeAdvantage;
  rule.lower = -threshold;
  return rule;
}

}  // namespace counterweight::server
