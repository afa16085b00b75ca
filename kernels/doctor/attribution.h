// Why a batch drifts: its k3 by cause, by kind of token and by sequence.
//
// Sums are exact (kernels/math/exact_sum.h): those of parts of a batch merge to
// the same bytes in any order and grouping of whole rows.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_ATTRIBUTION_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_ATTRIBUTION_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/batch.h"
#include "kernels/doctor/drift_columns.h"
#include "kernels/doctor/sample.h"

namespace counterweight::kernels::doctor {

// A sum over tokens that cannot be known from what was sent.
inline constexpr double kUnknownSum = std::numeric_limits<double>::quiet_NaN();

// Sums in nats over tokens; kl = sum -l.
struct Causes {
  double k3 = 0.0;
  double kl = 0.0;
  // k3 = engine_staleness + update + interaction: of old over rollout, of
  // current over old, and of both together.
  double k3_engine_staleness = kUnknownSum;
  double k3_update = kUnknownSum;
  double k3_interaction = kUnknownSum;
  double kl_engine_staleness = kUnknownSum;
  double kl_update = kUnknownSum;
  // The engine's part of k3_engine_staleness if all tokens have the mean of
  // the fresh ones; needs kLeastFresh of them.
  double k3_engine = kUnknownSum;
  int64_t fresh_tokens = 0;  // of rows where all tokens have staleness 0
  double fresh_k3 = 0.0;     // of old over rollout
};
inline constexpr int64_t kLeastFresh = 200;

// Tokens from `first` to below the next bucket's.
struct Bucket {
  double first = 0.0;
  int64_t tokens = 0;
  double log_ratio = 0.0;
  double k3 = 0.0;
  // The sum if each token had the mean of the batch's tokens of its magnitude.
  double k3_expected = kUnknownSum;
};

struct HeavySequence {
  int64_t sequence = 0;
  int64_t tokens = 0;
  double k3 = 0.0;
};

struct Attribution {
  // l = log numerator - log denominator.
  InputRole numerator = InputRole::kCurrent;
  InputRole denominator = InputRole::kRollout;
  int64_t tokens = 0;
  int64_t sequences = 0;
  Causes causes;
  // Ascending; without the empty ones.
  std::vector<Bucket> by_magnitude;  // of the denominator's log-prob
  std::vector<Bucket> by_position;   // with k3_expected
  std::vector<Bucket> by_length;
  std::vector<Bucket> by_log_ratio;
  // By k3, descending, and then by index.
  std::vector<HeavySequence> heaviest;
};
inline constexpr int kMostHeaviest = 8;

// Adds up whole rows.
class AttributionSums {
 public:
  explicit AttributionSums(const Streams& streams) : streams_(streams) {}

  // Adds the sample's rows; row r of the batch counts as sequence
  // first_sequence + r.
  void Add(const Batch& batch, const Sample& sample,
           int64_t first_sequence = 0);
  // Adds the sums of other rows of the same tensors.
  void Merge(const AttributionSums& other);

  Attribution Read() const;

 private:
  void AddTotals(const DriftTotals& more);
  void AddHeaviest(const std::vector<HeavySequence>& more);
  double Sum(int column) const;
  Causes ReadCauses(int64_t tokens) const;
  // The buckets with tokens of a family of `count`; its sums begin at
  // `column`.
  template <class Tokens, class First>
  std::vector<Bucket> Buckets(int count, int column, Tokens tokens,
                              First first) const;

  Streams streams_;
  DriftTotals totals_ = {};
  int64_t sequences_ = 0;
  std::vector<HeavySequence> heaviest_;
};

// One or two sentences: the causes, the tokens and the sequences with most of
// it.
std::string Sentence(const Attribution& attribution);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_ATTRIBUTION_H_
