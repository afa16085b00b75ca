// The numbers of counterweight/v1/sums.proto by message: the name of the field,
// the kernels' sum, the published one, its range. A member of PublishedSums
// without a row does not compile. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_FIELDS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/sums.h"
#include "server/engine/published_sums.h"

namespace counterweight::server {

// Largest value of a count.
enum class Most : uint8_t {
  kMaxTokens,     // RequestLimits::max_tokens, as of a batch that is sent
  kMaxSequences,  // RequestLimits::max_sequences
  kSequences,     // of the batch
  kNonemptySequences,
  kTokens,
  kOutside,  // of the weights: tokens_outside
};

template <class Kernel, class Sums>
struct CountField {
  const char* name;
  int64_t Kernel::*from;
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

template <class Kernel, class Sums>
struct NumberField {
  const char* name;
  double Kernel::*from;
  double Sums::*sum;
  Range range;
};

// Those after `tokens` and `nonempty_sequences` are compared with them.
inline constexpr CountField<kernels::BatchSums, PublishedSums> kBatchCounts[] =
    {
        {"sequences", &kernels::BatchSums::num_sequences,
         &PublishedSums::num_sequences, Most::kMaxSequences},
        {"tokens", &kernels::BatchSums::tokens, &PublishedSums::tokens,
         Most::kMaxTokens},
        {"nonempty_sequences", &kernels::BatchSums::nonempty_sequences,
         &PublishedSums::nonempty_sequences, Most::kSequences},
        {"kept_tokens", &kernels::BatchSums::kept_tokens,
         &PublishedSums::kept_tokens, Most::kTokens},
        {"kept_sequences", &kernels::BatchSums::kept_sequences,
         &PublishedSums::kept_sequences, Most::kNonemptySequences},
        {"non_finite_tokens", &kernels::BatchSums::non_finite_tokens,
         &PublishedSums::non_finite_tokens, Most::kMaxTokens},
};

inline constexpr NumberField<kernels::DriftSums, PublishedSums::Drift>
    kDriftNumbers[] = {
        {"log_ratio", &kernels::DriftSums::log_ratio,
         &PublishedSums::Drift::log_ratio, Range::kOverTokens},
        {"k2", &kernels::DriftSums::k2, &PublishedSums::Drift::k2,
         Range::kAtLeast0},
        {"k3", &kernels::DriftSums::k3, &PublishedSums::Drift::k3,
         Range::kAtLeast0},
        {"excess", &kernels::DriftSums::excess, &PublishedSums::Drift::excess,
         Range::kFinite},
        {"excess_squared", &kernels::DriftSums::excess_squared,
         &PublishedSums::Drift::excess_squared, Range::kFiniteAtLeast0},
        {"log_ppl_difference", &kernels::DriftSums::log_ppl_difference,
         &PublishedSums::Drift::log_ppl_difference, Range::kOverSequences},
        {"ppl_ratio_excess", &kernels::DriftSums::ppl_ratio_excess,
         &PublishedSums::Drift::ppl_ratio_excess, Range::kNumber},
        {"chi2_sequence", &kernels::DriftSums::chi2_sequence,
         &PublishedSums::Drift::chi2_sequence, Range::kFinite},
};

inline constexpr NumberField<kernels::WeightSums, PublishedSums::Weight>
    kWeightNumbers[] = {
        {"weight", &kernels::WeightSums::weight, &PublishedSums::Weight::weight,
         Range::kAtLeast0},
        {"weight_squared", &kernels::WeightSums::weight_squared,
         &PublishedSums::Weight::weight_squared, Range::kAtLeast0},
        {"excess", &kernels::WeightSums::excess, &PublishedSums::Weight::excess,
         Range::kNumber},
        {"excess_squared", &kernels::WeightSums::excess_squared,
         &PublishedSums::Weight::excess_squared, Range::kAtLeast0},
};
inline constexpr NumberField<kernels::WeightSums, PublishedSums::Weight>
    kKeptWeightNumbers[] = {
        {"kept_weight", &kernels::WeightSums::kept_weight,
         &PublishedSums::Weight::kept_weight, Range::kAtLeast0},
        {"kept_weight_squared", &kernels::WeightSums::kept_weight_squared,
         &PublishedSums::Weight::kept_weight_squared, Range::kAtLeast0},
};
inline constexpr CountField<kernels::WeightSums, PublishedSums::Weight>
    kWeightCounts[] = {
        {"tokens_outside", &kernels::WeightSums::tokens_outside,
         &PublishedSums::Weight::tokens_outside, Most::kTokens},
        {"tokens_high", &kernels::WeightSums::tokens_high,
         &PublishedSums::Weight::tokens_high, Most::kOutside},
};

inline constexpr NumberField<kernels::LossSums, PublishedSums::Loss>
    kLossNumbers[] = {
        {"total", &kernels::LossSums::total, &PublishedSums::Loss::total,
         Range::kAny},
        {"policy", &kernels::LossSums::policy, &PublishedSums::Loss::policy,
         Range::kAny},
        {"log_ratio_kept", &kernels::LossSums::log_ratio_kept,
         &PublishedSums::Loss::log_ratio_kept, Range::kAny},
        {"gradient_squared", &kernels::LossSums::gradient_squared,
         &PublishedSums::Loss::gradient_squared, Range::kAny},
        {"slope", &kernels::LossSums::slope, &PublishedSums::Loss::slope,
         Range::kAny},
        {"slope_clipped", &kernels::LossSums::slope_clipped,
         &PublishedSums::Loss::slope_clipped, Range::kAny},
        {"slope_rejected", &kernels::LossSums::slope_rejected,
         &PublishedSums::Loss::slope_rejected, Range::kAny},
};
inline constexpr CountField<kernels::LossSums, PublishedSums::Loss>
    kLossCounts[] = {
        {"clipped", &kernels::LossSums::clipped, &PublishedSums::Loss::clipped,
         Most::kTokens},
        {"high", &kernels::LossSums::high, &PublishedSums::Loss::high,
         Most::kTokens},
        {"low", &kernels::LossSums::low, &PublishedSums::Loss::low,
         Most::kTokens},
};

inline constexpr NumberField<kernels::LossSums, PublishedSums::Loss>
    kKlPenaltyNumbers[] = {
        {"penalty", &kernels::LossSums::kl_penalty,
         &PublishedSums::Loss::kl_penalty, Range::kAny},
        {"kl", &kernels::LossSums::kl, &PublishedSums::Loss::kl, Range::kAny},
};
inline constexpr CountField<kernels::LossSums, PublishedSums::Loss>
    kKlPenaltyCounts[] = {
        {"kl_tokens", &kernels::LossSums::kl_tokens,
         &PublishedSums::Loss::kl_tokens, Most::kMaxTokens},
};

inline constexpr CountField<kernels::RuleSums, PublishedSums::Rule>
    kRuleCounts[] = {
        {"dropped_tokens", &kernels::RuleSums::dropped_tokens,
         &PublishedSums::Rule::dropped_tokens, Most::kTokens},
        {"dropped_sequences", &kernels::RuleSums::dropped_sequences,
         &PublishedSums::Rule::dropped_sequences, Most::kNonemptySequences},
};

inline constexpr NumberField<kernels::StalenessSums, PublishedSums::Staleness>
    kStalenessNumbers[] = {
        {"staleness", &kernels::StalenessSums::staleness,
         &PublishedSums::Staleness::staleness, Range::kStaleness},
};
inline constexpr CountField<kernels::StalenessSums, PublishedSums::Staleness>
    kStalenessCounts[] = {
        {"unknown_tokens", &kernels::StalenessSums::unknown_tokens,
         &PublishedSums::Staleness::unknown_tokens, Most::kTokens},
};

inline constexpr NumberField<kernels::StalenessBucketSums,
                             kernels::StalenessBucketSums>
    kBucketNumbers[] = {
        {"log_ratio", &kernels::StalenessBucketSums::log_ratio,
         &kernels::StalenessBucketSums::log_ratio, Range::kOverTokens},
        {"k3", &kernels::StalenessBucketSums::k3,
         &kernels::StalenessBucketSums::k3, Range::kAtLeast0},
};
inline constexpr CountField<kernels::StalenessBucketSums,
                            kernels::StalenessBucketSums>
    kBucketCounts[] = {
        {"tokens", &kernels::StalenessBucketSums::tokens,
         &kernels::StalenessBucketSums::tokens, Most::kTokens},
};

// Every member has 8 bytes, so that a struct has as many as its tables have
// rows and its other members.
template <class Sums>
constexpr bool HasAll(size_t rows, size_t others) {
  return sizeof(Sums) == 8 * (rows + others);
}
static_assert(HasAll<PublishedSums::Drift>(
    std::size(kDriftNumbers), 2 * (kernels::kNumHistogramEdges + 1)));
static_assert(HasAll<PublishedSums::Weight>(std::size(kWeightNumbers) +
                                                std::size(kKeptWeightNumbers) +
                                                std::size(kWeightCounts),
                                            1));
static_assert(HasAll<PublishedSums::Loss>(std::size(kLossNumbers) +
                                              std::size(kLossCounts) +
                                              std::size(kKlPenaltyNumbers) +
                                              std::size(kKlPenaltyCounts),
                                          0));
static_assert(HasAll<PublishedSums::Rule>(std::size(kRuleCounts), 0));
static_assert(HasAll<kernels::StalenessBucketSums>(std::size(kBucketNumbers) +
                                                       std::size(kBucketCounts),
                                                   0));
static_assert(HasAll<PublishedSums::Staleness>(
    std::size(kStalenessNumbers) + std::size(kStalenessCounts),
    1 + (kernels::kNumStalenessEdges + 1) +
        sizeof(PublishedSums::Staleness::buckets) / 8));
static_assert(HasAll<PublishedSums>(
    std::size(kBatchCounts),
    (sizeof(PublishedSums::Drift) + sizeof(PublishedSums::Weight) +
     sizeof(PublishedSums::Loss) + sizeof(PublishedSums::rules) +
     sizeof(PublishedSums::Staleness)) /
        8));

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_PUBLICATION_FIELDS_H_
