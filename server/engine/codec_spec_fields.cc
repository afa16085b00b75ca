#include "server/engine/codec_spec_fields.h"

#include <string>
#include <string_view>

#include "kernels/loss_parameters.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

using kernels::SpecField;
using kernels::SpecViolation;

enum class Part { kSpec, kWeight, kRule, kLoss, kKl };

// The contract's name of a kernel field.
struct FieldName {
  SpecField field;
  Part part;
  std::string_view name;
  // False: the part's message has no such field; a dialect sets it.
  bool is_on_wire = true;
};

constexpr FieldName kFieldNames[] = {
    {SpecField::kNumRules, Part::kSpec, "rules"},
    {SpecField::kWeightNormalize, Part::kWeight, "normalize"},
    {SpecField::kWeightTokenClamp, Part::kWeight, "token_clamp"},
    {SpecField::kWeightAggregateClamp, Part::kWeight, "aggregate_clamp"},
    {SpecField::kWeightLower, Part::kWeight, "lower"},
    {SpecField::kWeightUpper, Part::kWeight, "upper"},
    {SpecField::kWeightBound, Part::kWeight, "bound"},
    {SpecField::kWeightGivenMean, Part::kWeight, "given_mean",
     /*is_on_wire=*/false},
    {SpecField::kWeightSource, Part::kWeight, "ratio_source"},
    {SpecField::kWeightAfterRule, Part::kWeight, "after_rule"},
    {SpecField::kRuleAggregation, Part::kRule, "aggregation"},
    {SpecField::kRuleTokenClamp, Part::kRule, "token_clamp"},
    {SpecField::kRuleAggregateClamp, Part::kRule, "aggregate_clamp"},
    {SpecField::kRuleLower, Part::kRule, "lower"},
    {SpecField::kRuleUpper, Part::kRule, "upper"},
    {SpecField::kRuleEffect, Part::kRule, "effect"},
    {SpecField::kLossSurrogate, Part::kLoss, "surrogate"},
    {SpecField::kLossSource, Part::kLoss, "ratio_source"},
    {SpecField::kLossMetricsSource, Part::kLoss, "metrics_source",
     /*is_on_wire=*/false},
    {SpecField::kLossReductionScale, Part::kLoss, "norm_length"},
    {SpecField::kLossPrescalesAdvantages, Part::kLoss, "prescales_advantages",
     /*is_on_wire=*/false},
    {SpecField::kLossAveragesAdvantages, Part::kLoss, "average_advantages"},
    {SpecField::kLossCountsPadding, Part::kLoss, "counts_padding",
     /*is_on_wire=*/false},
    {SpecField::kLossAllowDoubleCorrection, Part::kLoss,
     "allow_double_correction"},
    {SpecField::kKlEstimator, Part::kKl, "estimator"},
    {SpecField::kKlCoefficient, Part::kKl, "coefficient"},
    {SpecField::kKlTokenClamp, Part::kKl, "token_clamp"},
    {SpecField::kKlValueClamp, Part::kKl, "value_clamp"},
    {SpecField::kKlImportanceWeighted, Part::kKl, "importance_weighted"},
    {SpecField::kKlGradientRatioCap, Part::kKl, "gradient_ratio_cap",
     /*is_on_wire=*/false},
    {SpecField::kKlReduction, Part::kKl, "reduction", /*is_on_wire=*/false},
    // The penalty has the reduction of its loss.
    {SpecField::kKlReductionScale, Part::kLoss, "norm_length"},
};

// A loss's numbers have their names in kLossParameters.
constexpr FieldName NameOf(SpecField field) {
  for (const FieldName& row : kFieldNames) {
    if (row.field == field) return row;
  }
  for (const kernels::LossParameterInfo& row : kernels::kLossParameters) {
    if (FieldOf(row.parameter) == field) return {field, Part::kLoss, row.name};
  }
  return {};
}

constexpr bool EveryFieldHasAName() {
  const int count = kernels::kNumSpecFields + kernels::kNumLossParameters;
  for (int i = 0; i < count; ++i) {
    if (NameOf(static_cast<SpecField>(i)).name.empty()) return false;
  }
  return true;
}
static_assert(EveryFieldHasAName());

// Returns "rules[2].upper"; `weight` is the name of the part with two
// spellings.
std::string PathOf(const SpecViolation& violation, std::string_view weight) {
  const FieldName field = NameOf(violation.field);
  switch (field.part) {
    case Part::kSpec:
      return std::string(field.name);
    case Part::kWeight:
      return Concat(weight, ".", field.name);
    case Part::kRule:
      return Concat("rules[", std::to_string(violation.rule), "].", field.name);
    case Part::kLoss:
      return Concat("policy_loss.", field.name);
    case Part::kKl:
      return Concat("kl_penalty.", field.name);
  }
  return {};
}

// Returns the path in a message of the contract; the part's path if the message
// has no such field.
std::string WirePathOf(const SpecViolation& violation) {
  const std::string path = PathOf(violation, "importance_weight");
  return NameOf(violation.field).is_on_wire ? path
                                            : path.substr(0, path.find('.'));
}

// Returns a sentence about a spec that the caller did not spell out.
std::string Sentence(const SpecViolation& violation) {
  return Concat(PathOf(violation, "weight"), " ", violation.reason);
}

}  // namespace

Violation ToConfigViolation(const SpecViolation& violation) {
  return {Concat("method.config.", WirePathOf(violation)), violation.reason};
}

Violation ToPresetViolation(const SpecViolation& violation) {
  const Part part = NameOf(violation.field).part;
  if (part == Part::kLoss || part == Part::kKl) {
    return {Concat("method.preset.", WirePathOf(violation)), violation.reason};
  }
  return {"method.preset.parameters", Sentence(violation)};
}

Violation ToDialectViolation(const SpecViolation& violation) {
  return {"method.dialect.block",
          Concat("asks for a method that cannot be computed: ",
                 Sentence(violation))};
}

}  // namespace counterweight::server
