// Tables of the enums that the wire and the kernels share, one for each pair,
// read in both directions. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_ENUMS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_ENUMS_H_

#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "counterweight/v1/correction_service.pb.h"
#include "counterweight/v1/method.pb.h"
#include "counterweight/v1/tensor.pb.h"
#include "kernels/batch.h"
#include "kernels/spec.h"

namespace counterweight::server {

template <class Kernel, class Wire>
struct EnumPair {
  Kernel kernel;
  Wire wire;
  // The wire's name in messages to callers.
  std::string_view name;
};

// True if the table has all of the wire's values except UNSPECIFIED, which is
// 0, and the kernels' from the first to `last`, both in order: a value that
// only one enum has does not compile.
template <class Kernel, class Wire, size_t size>
constexpr bool IsWhole(const EnumPair<Kernel, Wire> (&table)[size],
                       int wire_size, Kernel last) {
  const int first = static_cast<int>(table[0].kernel);
  for (size_t i = 0; i < size; ++i) {
    const int index = static_cast<int>(i);
    if (static_cast<int>(table[i].wire) != index + 1) return false;
    if (static_cast<int>(table[i].kernel) != first + index) return false;
  }
  return static_cast<int>(size) + 1 == wire_size &&
         table[size - 1].kernel == last;
}

// Returns nothing if the table lacks it: proto3 enums hold any number.
template <class Kernel, class Wire, size_t size>
constexpr std::optional<Kernel> FromWire(
    const EnumPair<Kernel, Wire> (&table)[size], Wire wire) {
  for (const auto& pair : table) {
    if (pair.wire == wire) return pair.kernel;
  }
  return std::nullopt;
}

// Returns 0, which is UNSPECIFIED, if the table lacks it.
template <class Kernel, class Wire, size_t size>
constexpr Wire ToWire(const EnumPair<Kernel, Wire> (&table)[size],
                      Kernel kernel) {
  for (const auto& pair : table) {
    if (pair.kernel == kernel) return pair.wire;
  }
  return Wire{};
}

// Returns an empty name if the table lacks it.
template <class Kernel, class Wire, size_t size>
constexpr std::string_view NameOf(const EnumPair<Kernel, Wire> (&table)[size],
                                  Kernel kernel) {
  for (const auto& pair : table) {
    if (pair.kernel == kernel) return pair.name;
  }
  return {};
}

// Returns "A, B or C".
template <class Kernel, class Wire, size_t size>
std::string Choices(const EnumPair<Kernel, Wire> (&table)[size]) {
  std::string choices(table[0].name);
  for (size_t i = 1; i < size; ++i) {
    choices += i + 1 < size ? ", " : " or ";
    choices += table[i].name;
  }
  return choices;
}

// The kernels have further sources, which only a dialect or a penalty uses.
inline constexpr EnumPair<kernels::RatioSource, v1::RatioSource>
    kRatioSources[] = {
        {kernels::RatioSource::kOldRollout, v1::RATIO_SOURCE_OLD_ROLLOUT,
         "OLD_ROLLOUT"},
        {kernels::RatioSource::kCurrentRollout,
         v1::RATIO_SOURCE_CURRENT_ROLLOUT, "CURRENT_ROLLOUT"},
        {kernels::RatioSource::kCurrentOld, v1::RATIO_SOURCE_CURRENT_OLD,
         "CURRENT_OLD"},
};
static_assert(IsWhole(kRatioSources, v1::RatioSource_ARRAYSIZE,
                      kernels::RatioSource::kCurrentOld));

// An absent weight is Level::kNone.
inline constexpr EnumPair<kernels::Level, v1::Level> kLevels[] = {
    {kernels::Level::kToken, v1::LEVEL_TOKEN, "TOKEN"},
    {kernels::Level::kSequence, v1::LEVEL_SEQUENCE, "SEQUENCE"},
    {kernels::Level::kGeometric, v1::LEVEL_GEOMETRIC, "GEOMETRIC"},
    {kernels::Level::kPrefix, v1::LEVEL_PREFIX, "PREFIX"},
    {kernels::Level::kTurn, v1::LEVEL_TURN, "TURN"},
};
static_assert(IsWhole(kLevels, v1::Level_ARRAYSIZE, kernels::Level::kLast));

inline constexpr EnumPair<kernels::Bound, v1::Bound> kBoundKinds[] = {
    {kernels::Bound::kNone, v1::BOUND_NONE, "NONE"},
    {kernels::Bound::kTruncate, v1::BOUND_TRUNCATE, "TRUNCATE"},
    {kernels::Bound::kMask, v1::BOUND_MASK, "MASK"},
};
static_assert(IsWhole(kBoundKinds, v1::Bound_ARRAYSIZE, kernels::Bound::kMask));

inline constexpr EnumPair<kernels::Estimator, v1::Estimator> kEstimators[] = {
    {kernels::Estimator::kRatio, v1::ESTIMATOR_RATIO, "RATIO"},
    {kernels::Estimator::kK2, v1::ESTIMATOR_K2, "K2"},
    {kernels::Estimator::kK3, v1::ESTIMATOR_K3, "K3"},
    {kernels::Estimator::kBinaryKl, v1::ESTIMATOR_BINARY_KL, "BINARY_KL"},
    {kernels::Estimator::kTotalVariation, v1::ESTIMATOR_TOTAL_VARIATION,
     "TOTAL_VARIATION"},
    {kernels::Estimator::kDifference, v1::ESTIMATOR_DIFFERENCE, "DIFFERENCE"},
    {kernels::Estimator::kReverseK3, v1::ESTIMATOR_REVERSE_K3, "REVERSE_K3"},
};
static_assert(IsWhole(kEstimators, v1::Estimator_ARRAYSIZE,
                      kernels::Estimator::kLast));

inline constexpr EnumPair<kernels::Aggregation, v1::Aggregation>
    kAggregations[] = {
        {kernels::Aggregation::kToken, v1::AGGREGATION_TOKEN, "TOKEN"},
        {kernels::Aggregation::kSum, v1::AGGREGATION_SUM, "SUM"},
        {kernels::Aggregation::kMean, v1::AGGREGATION_MEAN, "MEAN"},
        {kernels::Aggregation::kMax, v1::AGGREGATION_MAX, "MAX"},
        {kernels::Aggregation::kAll, v1::AGGREGATION_ALL, "ALL"},
        {kernels::Aggregation::kPrefixMean, v1::AGGREGATION_PREFIX_MEAN,
         "PREFIX_MEAN"},
        {kernels::Aggregation::kTurnMean, v1::AGGREGATION_TURN_MEAN,
         "TURN_MEAN"},
};
static_assert(IsWhole(kAggregations, v1::Aggregation_ARRAYSIZE,
                      kernels::Aggregation::kLast));

inline constexpr EnumPair<kernels::Condition, v1::RuleCondition> kConditions[] =
    {
        {kernels::Condition::kAlways, v1::RULE_CONDITION_ALWAYS, "ALWAYS"},
        {kernels::Condition::kNegativeAdvantage,
         v1::RULE_CONDITION_NEGATIVE_ADVANTAGE, "NEGATIVE_ADVANTAGE"},
        {kernels::Condition::kPositiveAdvantage,
         v1::RULE_CONDITION_POSITIVE_ADVANTAGE, "POSITIVE_ADVANTAGE"},
        {kernels::Condition::kNonPositiveAdvantage,
         v1::RULE_CONDITION_NON_POSITIVE_ADVANTAGE, "NON_POSITIVE_ADVANTAGE"},
};
static_assert(IsWhole(kConditions, v1::RuleCondition_ARRAYSIZE,
                      kernels::Condition::kLast));

inline constexpr EnumPair<kernels::Effect, v1::RuleEffect> kEffects[] = {
    {kernels::Effect::kDrop, v1::RULE_EFFECT_DROP, "DROP"},
    {kernels::Effect::kZeroWeight, v1::RULE_EFFECT_ZERO_WEIGHT, "ZERO_WEIGHT"},
};
static_assert(IsWhole(kEffects, v1::RuleEffect_ARRAYSIZE,
                      kernels::Effect::kZeroWeight));

inline constexpr EnumPair<kernels::Evaluation, v1::RuleEvaluation>
    kEvaluations[] = {
        {kernels::Evaluation::kParallel, v1::RULE_EVALUATION_PARALLEL,
         "PARALLEL"},
        {kernels::Evaluation::kSequential, v1::RULE_EVALUATION_SEQUENTIAL,
         "SEQUENTIAL"},
};
static_assert(IsWhole(kEvaluations, v1::RuleEvaluation_ARRAYSIZE,
                      kernels::Evaluation::kSequential));

inline constexpr EnumPair<kernels::NonFinitePolicy, v1::NonFinitePolicy>
    kNonFinitePolicies[] = {
        {kernels::NonFinitePolicy::kReject, v1::NON_FINITE_POLICY_REJECT,
         "REJECT"},
        {kernels::NonFinitePolicy::kDrop, v1::NON_FINITE_POLICY_DROP, "DROP"},
        {kernels::NonFinitePolicy::kNeutralize,
         v1::NON_FINITE_POLICY_NEUTRALIZE, "NEUTRALIZE"},
};
static_assert(IsWhole(kNonFinitePolicies, v1::NonFinitePolicy_ARRAYSIZE,
                      kernels::NonFinitePolicy::kNeutralize));

// An absent penalty is KlEstimator::kNone.
inline constexpr EnumPair<kernels::KlEstimator, v1::KlEstimator>
    kKlEstimators[] = {
        {kernels::KlEstimator::kK1, v1::KL_ESTIMATOR_K1, "K1"},
        {kernels::KlEstimator::kK2, v1::KL_ESTIMATOR_K2, "K2"},
        {kernels::KlEstimator::kK3, v1::KL_ESTIMATOR_K3, "K3"},
        {kernels::KlEstimator::kAbs, v1::KL_ESTIMATOR_ABS, "ABS"},
};
static_assert(IsWhole(kKlEstimators, v1::KlEstimator_ARRAYSIZE,
                      kernels::KlEstimator::kAbs));

// The wire's roles that kernels read as numbers.
inline constexpr EnumPair<kernels::InputRole, v1::TensorRole> kInputRoles[] = {
    {kernels::InputRole::kRollout, v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS,
     "ROLLOUT_LOG_PROBS"},
    {kernels::InputRole::kOld, v1::TENSOR_ROLE_OLD_LOG_PROBS, "OLD_LOG_PROBS"},
    {kernels::InputRole::kCurrent, v1::TENSOR_ROLE_CURRENT_LOG_PROBS,
     "CURRENT_LOG_PROBS"},
    {kernels::InputRole::kAdvantages, v1::TENSOR_ROLE_ADVANTAGES, "ADVANTAGES"},
    {kernels::InputRole::kRef, v1::TENSOR_ROLE_REF_LOG_PROBS, "REF_LOG_PROBS"},
};
static_assert(std::size(kInputRoles) == kernels::kNumInputRoles);

// The wire's types that inputs may have.
inline constexpr EnumPair<kernels::DType, v1::DType> kInputTypes[] = {
    {kernels::DType::kF32, v1::D_TYPE_F32, "F32"},
    {kernels::DType::kBF16, v1::D_TYPE_BF16, "BF16"},
    {kernels::DType::kF16, v1::D_TYPE_F16, "F16"},
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_ENUMS_H_
