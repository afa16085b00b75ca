#include "server/engine/codec_calm_bound.h"

#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/doctor/digits.h"
#include "kernels/methods.h"
#include "server/engine/codec_config.h"
#include "server/engine/codec_labels.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

constexpr char kUpper[] = "upper";
constexpr char kPresetField[] = "method.preset.calm_quantiles[upper]";
constexpr char kConfigField[] =
    "method.config.importance_weight.upper_calm_quantile";
// Where the method has no number of its own; any will do.
constexpr double kSomeUpper = 2.0;

std::string Number(double value) { return kernels::doctor::Digits(value, 6); }

// The weight of the preset with this upper end, if its parameter is that.
std::optional<kernels::WeightSpec> WeightWith(const v1::Preset& preset,
                                              double upper) {
  const kernels::Method* const row = kernels::FindMethod(preset.name());
  if (row == nullptr) return std::nullopt;
  std::vector<kernels::ParameterViolation> found;
  const kernels::CorrectionSpec spec =
      kernels::MakeSpec(*row, {{kUpper, upper}}, &found);
  if (!found.empty() || spec.weight.upper != upper) return std::nullopt;
  return spec.weight;
}

Result<CalmBound> ReadOfPreset(const v1::Preset& preset) {
  Result<CalmBound> result;
  for (const auto& [name, quantile] : preset.calm_quantiles()) {
    result.value.weights.quantile = quantile;
    if (name == kUpper) continue;
    result.violations.push_back(
        {Concat("method.preset.calm_quantiles[", name, "]"),
         "only upper can be of calm steps; give a number in parameters"});
  }
  result.value.field = kPresetField;
  if (const auto own = preset.parameters().find(kUpper);
      own != preset.parameters().end()) {
    result.value.until = own->second;
  }
  // A parameter that is the bound of the weight follows every number.
  const auto weight = WeightWith(preset, kSomeUpper);
  if (weight && WeightWith(preset, 2.0 * kSomeUpper)) {
    result.value.weights.spec = *weight;
  } else if (result.ok() && kernels::FindMethod(preset.name()) != nullptr) {
    result.violations.push_back(
        {kPresetField,
         Concat(preset.name(), " has no upper end of its weights")});
  }
  return result;
}

Result<CalmBound> ReadOfConfig(const v1::CorrectionConfig& config) {
  Result<CalmBound> result;
  const v1::ImportanceWeight& weight = config.importance_weight();
  v1::CorrectionConfig spelled;
  *spelled.mutable_importance_weight() = weight;
  spelled.mutable_importance_weight()->clear_upper_calm_quantile();
  result.value.weights.spec = DecodeConfig(spelled, {}).value.weight;
  result.value.weights.quantile = weight.upper_calm_quantile();
  result.value.field = kConfigField;
  if (weight.has_upper()) result.value.until = weight.upper();
  if (weight.after_rule() != 0) {
    result.violations.push_back(
        {kConfigField,
         "is of all tokens' weights, and after_rule leaves some out; drop one "
         "of them"});
  }
  if (config.has_sequence_filter()) {
    result.violations.push_back(
        {kConfigField,
         "is of all tokens' weights, and sequence_filter leaves some out; drop "
         "one of them"});
  }
  if (weight.level() == v1::LEVEL_TURN) {
    result.violations.push_back(
        {kConfigField,
         "is not counted for TURN weights; give a number in upper"});
  }
  return result;
}

}  // namespace

bool HasCalmBound(const v1::Method& method) {
  return !method.preset().calm_quantiles().empty() ||
         method.config().importance_weight().has_upper_calm_quantile();
}

Result<CalmBound> ReadCalmBound(const v1::Method& method) {
  Result<CalmBound> result = method.has_preset()
                                 ? ReadOfPreset(method.preset())
                                 : ReadOfConfig(method.config());
  CalmWeights& weights = result.value.weights;
  if (!(weights.quantile > 0.5 && weights.quantile < 1.0)) {
    result.violations.push_back(
        {result.value.field, "must be a quantile in (0.5, 1), such as 0.999"});
  }
  const kernels::WeightSpec& all = weights.spec;
  weights.spec = {.level = all.level,
                  .source = all.source,
                  .token_clamp = all.token_clamp,
                  .aggregate_clamp = all.aggregate_clamp};
  return result;
}

Violations CheckCalmLabels(const v1::CorrectRequest& request,
                           const CalmBound& bound) {
  Violations violations;
  const v1::Labels& labels = request.labels();
  CheckLabels(request.request_id(), labels, &violations);
  const auto require = [&](bool has, const char* field) {
    if (has) return;
    violations.push_back({field, Concat("is required by ", bound.field,
                                        ", which is of the run's steps")});
  };
  require(!labels.run().empty(), "labels.run");
  require(labels.has_step(), "labels.step");
  return violations;
}

void SetBound(double upper, v1::Method* method) {
  if (method->has_preset()) {
    method->mutable_preset()->clear_calm_quantiles();
    (*method->mutable_preset()->mutable_parameters())[kUpper] = upper;
    return;
  }
  v1::ImportanceWeight* const weight =
      method->mutable_config()->mutable_importance_weight();
  weight->clear_upper_calm_quantile();
  weight->set_upper(upper);
}

v1::Method WithoutCalmBound(const v1::Method& method) {
  v1::Method plain = method;
  SetBound(ReadCalmBound(method).value.until.value_or(kSomeUpper), &plain);
  return plain;
}

Violation NoCalmLevel(const std::string& run, const CalmBound& bound,
                      const CalmLevel& level) {
  const auto needed =
      static_cast<int64_t>(std::ceil(bound.weights.needed_weights()));
  return {
      bound.field,
      Concat("run '", run, "' has no calm level for it yet: ", level.steps,
             " steps with ", level.weights, " weights asked for it; it takes ",
             kFewestCalmSteps, " steps, with ", needed,
             " weights. Give upper too, which bounds them until then")};
}

std::string WarnOfFewWeights(const CalmBound& bound, const CalmLevel& level) {
  return Concat(bound.field, ": the newest ", level.steps, " steps have ",
                level.weights, " weights, too few for the quantile ",
                Number(bound.weights.quantile),
                "; ask for a smaller one. Until then upper is ",
                Number(bound.until.value_or(kSomeUpper)));
}

std::string WarnOfUncountedBatch(const CalmBound& bound, bool omits_metrics) {
  return Concat(bound.field, ": ",
                omits_metrics ? "the batch has no metrics"
                              : "the server has no memory to examine the batch",
                ", so its weights do not count for the run's calm level");
}

double BoundOf(const CalmBound& bound, const CalmLevel& level) {
  return level.is_calm ? level.bound : *bound.until;
}

void EncodeBound(const CalmBound& bound, const CalmLevel& level,
                 v1::CorrectResponse* response) {
  v1::ResolvedBound* const resolved = response->add_resolved_bounds();
  resolved->set_field(bound.field);
  resolved->set_value(BoundOf(bound, level));
  resolved->set_is_calm(level.is_calm);
  resolved->set_calm_steps(level.steps);
  resolved->set_calm_weights(level.weights);
}

}  // namespace counterweight::server
