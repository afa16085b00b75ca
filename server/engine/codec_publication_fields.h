// The numbers of counterweight/v1/sums.proto by message: the name of the field,
// the kernels' sum, its range. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_FIELDS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_FIELDS_H_

#include <cstdint>

#include "kernels/sums.h"

namespace counterweight::server {

// Largest value of a count.
enum class Most : uint8_t {
  kAny,        // kMostCount
  kSequences,  // of the batch
  kNonemptySequences,
  kTokens,
  kOutside,  // of the weights: tokens_outside
};
inline constexpr int64_t kMostCount = int64_t{1} << 40;

template <class Sums>
struct CountField {
  const char* name;
  int64_t Sums::*sum;
  Most most;
};

enum class Range : uint8_t {
  kFinite,
  kOverTokens,     // the same, and a token adds less than 2^128
  kOverSequences,  // the same of a nonempty sequence
  kStaleness,      // >= 0, and a token adds less than 2^63
  kFiniteAtLeast0,
  kAtLeast0,  // or +infinity
  kNumber,    // or +infinity
  kAny,       // NaN and -infinity too
};

template <class Sums>
struct NumberField {
  const char* name;
  double Sums::*sum;
  Range range;
};

// Those after `tokens` and `nonempty_sequences` are compared with them.
inline constexpr CountField<kernels::BatchSums> kBatchCounts[] = {
    {"sequences", &kernels::BatchSums::num_sequences, Most::kAny},
    {"tokens", &kernels::BatchSums::tokens, Most::kAny},
    {"nonempty_sequences", &kernels::BatchSums::nonempty_sequences,
     Most::kSequences},
    {"kept_tokens", &kernels::BatchSums::kept_tokens, Most::kTokens},
    {"kept_sequences", &kernels::BatchSums::kept_sequences,
     Most::kNonemptySequences},
    {"non_finite_tokens", &kernels::BatchSums::non_finite_tokens, Most::kAny},
};

inline constexpr NumberField<kernels::DriftSums> kDriftNumbers[] = {
    {"log_ratio", &kernels::DriftSums::log_ratio, Range::kOverTokens},
    {"k2", &kernels::DriftSums::k2, Range::kAtLeast0},
    {"k3", &kernels::DriftSums::k3, Range::kAtLeast0},
    {"excess", &kernels::DriftSums::excess, Range::kFinite},
    {"excess_squared", &kernels::DriftSums::excess_squared,
     Range::kFiniteAtLeast0},
    {"log_ppl_difference", &kernels::DriftSums::log_ppl_difference,
     Range::kOverSequences},
    {"ppl_ratio_excess", &kernels::DriftSums::ppl_ratio_excess, Range::kNumber},
    {"chi2_sequence", &kernels::DriftSums::chi2_sequence, Range::kFinite},
};

inline constexpr NumberField<kernels::WeightSums> kWeightNumbers[] = {
    {"weight", &kernels::WeightSums::weight, Range::kAtLeast0},
    {"weight_squared", &kernels::WeightSums::weight_squared, Range::kAtLeast0},
    {"excess", &kernels::WeightSums::excess, Range::kNumber},
    {"excess_squared", &kernels::WeightSums::excess_squared, Range::kAtLeast0},
};
inline constexpr CountField<kernels::WeightSums> kWeightCounts[] = {
    {"tokens_outside", &kernels::WeightSums::tokens_outside, Most::kTokens},
    {"tokens_high", &kernels::WeightSums::tokens_high, Most::kOutside},
};

inline constexpr NumberField<kernels::LossSums> kLossNumbers[] = {
    {"total", &kernels::LossSums::total, Range::kAny},
    {"policy", &kernels::LossSums::policy, Range::kAny},
    {"log_ratio_kept", &kernels::LossSums::log_ratio_kept, Range::kAny},
    {"gradient_squared", &kernels::LossSums::gradient_squared, Range::kAny},
    {"slope", &kernels::LossSums::slope, Range::kAny},
    {"slope_clipped", &kernels::LossSums::slope_clipped, Range::kAny},
    {"slope_rejected", &kernels::LossSums::slope_rejected, Range::kAny},
};
inline constexpr CountField<kernels::LossSums> kLossCounts[] = {
    {"clipped", &kernels::LossSums::clipped, Most::kTokens},
    {"high", &kernels::LossSums::high, Most::kTokens},
    {"low", &kernels::LossSums::low, Most::kTokens},
};

inline constexpr NumberField<kernels::LossSums> kKlPenaltyNumbers[] = {
    {"penalty", &kernels::LossSums::kl_penalty, Range::kAny},
    {"kl", &kernels::LossSums::kl, Range::kAny},
};
inline constexpr CountField<kernels::LossSums> kKlPenaltyCounts[] = {
    {"kl_tokens", &kernels::LossSums::kl_tokens, Most::kAny},
};

inline constexpr CountField<kernels::RuleSums> kRuleCounts[] = {
    {"dropped_tokens", &kernels::RuleSums::dropped_tokens, Most::kTokens},
    {"dropped_sequences", &kernels::RuleSums::dropped_sequences,
     Most::kNonemptySequences},
};

inline constexpr NumberField<kernels::StalenessSums> kStalenessNumbers[] = {
    {"staleness", &kernels::StalenessSums::staleness, Range::kStaleness},
};
inline constexpr CountField<kernels::StalenessSums> kStalenessCounts[] = {
    {"unknown_tokens", &kernels::StalenessSums::unknown_tokens, Most::kTokens},
};

inline constexpr NumberField<kernels::StalenessBucketSums> kBucketNumbers[] = {
    {"log_ratio", &kernels::StalenessBucketSums::log_ratio, Range::kOverTokens},
    {"k3", &kernels::StalenessBucketSums::k3, Range::kAtLeast0},
};
inline constexpr CountField<kernels::StalenessBucketSums> kBucketCounts[] = {
    {"tokens", &kernels::StalenessBucketSums::tokens, Most::kTokens},
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_FIELDS_H_
