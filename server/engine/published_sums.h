// The sums of a batch that the drift metrics are made of.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_PUBLISHED_SUMS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_PUBLISHED_SUMS_H_

#include <cstdint>

#include "kernels/sums.h"

namespace counterweight::server {

// The numbers of counterweight/v1/sums.proto, under the names of kernels::
// BatchSums, with its comments: a metric that needs another sum does not
// compile. codec_publication_fields.h lists each member, which is checked there
// too. All 0 where a batch has no such part.
struct PublishedSums {
  struct Drift {
    double log_ratio;
    double k2;
    double k3;
    double excess;
    double excess_squared;
    int64_t histogram[kernels::kNumHistogramEdges + 1];
    double log_ppl_difference;
    double ppl_ratio_excess;
    double chi2_sequence;
    int64_t sequence_histogram[kernels::kNumHistogramEdges + 1];
  };
  struct Weight {
    double weight;
    double weight_squared;
    double excess;
    double excess_squared;
    double kept_weight, kept_weight_squared;
    struct {
      double max;
    } range;
    int64_t tokens_high;
    int64_t tokens_outside;
  };
  struct Loss {
    double total;
    double policy;
    double log_ratio_kept;
    double gradient_squared;
    double slope, slope_clipped, slope_rejected;
    int64_t clipped;
    int64_t high, low;
    double kl_penalty;
    double kl;
    int64_t kl_tokens;
  };
  struct Rule {
    int64_t dropped_tokens;
    int64_t dropped_sequences;
  };
  struct Staleness {
    int64_t measured;  // 1: the batch has versions
    kernels::StalenessBucketSums buckets[kernels::kNumStalenessBuckets];
    int64_t unknown_tokens;
    double staleness;
    int64_t histogram[kernels::kNumStalenessEdges + 1];
  };

  int64_t num_sequences;
  int64_t nonempty_sequences;
  int64_t tokens;
  int64_t kept_tokens;
  int64_t kept_sequences;
  int64_t non_finite_tokens;
  Drift drift;
  Weight weight;
  Loss loss;
  Rule rules[kernels::kMaxRules];
  Staleness staleness;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_PUBLISHED_SUMS_H_
