// Violations of a spec, by its members.
#ifndef COUNTERWEIGHT_KERNELS_SPEC_VIOLATION_H_
#define COUNTERWEIGHT_KERNELS_SPEC_VIOLATION_H_

#include <cstdint>
#include <string>

namespace counterweight::kernels {

// A member of CorrectionSpec or of its parts. Callers map it to their own
// spelling.
enum class SpecField : uint8_t {
  kNumRules,
  // Members of WeightSpec.
  kWeightNormalize,
  kWeightTokenClamp,
  kWeightAggregateClamp,
  kWeightLower,
  kWeightUpper,
  kWeightBound,
  kWeightGivenMean,
  kWeightSource,
  kWeightAfterRule,
  // Members of RejectionRule.
  kRuleAggregation,
  kRuleTokenClamp,
  kRuleAggregateClamp,
  kRuleLower,
  kRuleUpper,
  kRuleEffect,
  // LossSpec; its numbers follow below.
  kLossSurrogate,
  kLossSource,
  kLossMetricsSource,
  kLossReductionScale,
  kLossPrescalesAdvantages,
  kLossAveragesAdvantages,
  kLossCountsPadding,
  kLossAllowDoubleCorrection,
  // Members of KlSpec.
  kKlEstimator,
  kKlCoefficient,
  kKlTokenClamp,
  kKlValueClamp,
  kKlImportanceWeighted,
  kKlGradientRatioCap,
  kKlReduction,
  kKlReductionScale,
  // Numbers of a loss, in the order of LossParameter: see FieldOf() there.
  kLossParameters,
};
inline constexpr int kNumSpecFields =
    static_cast<int>(SpecField::kLossParameters);

struct SpecViolation {
  SpecField field;
  // Index of the rule that has the field; -1 if it is not a rule's.
  int rule = -1;
  // Completes a sentence that begins with the field: "must be <= upper".
  std::string reason;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SPEC_VIOLATION_H_
