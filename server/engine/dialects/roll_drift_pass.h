// Means of ROLL's ratios and differences of probabilities at each level
// (roll/utils/train_infer_corrections.py, compute_train_infer_correction).
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_DRIFT_PASS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_DRIFT_PASS_H_

#include <cstdint>
#include <vector>

#include "server/engine/dialect.h"

namespace counterweight::server {

// Means of old over rollout log-probs: d = lo - lr, D = exp(lo) - exp(lr). A
// row's geometric value is of the mean of its d or D, its sequence value of
// their sum, and the segment values of the means over runs of adjacent tokens.
// Each is repeated for its tokens before the row is averaged.
class RollDriftPass {
 public:
  void Add(const RowTokens& row);

  // `rows`: RollDivisors::rows.
  void Write(double rows, MetricMap* metrics) const;

 private:
  enum Level : uint8_t { kToken, kGeometric, kSequence, kSegment, kNumLevels };

  // Some tokens of a row, and their sums.
  struct Part {
    double tokens = 0.0;
    double log_ratio = 0.0;
    double difference = 0.0;
  };

  // Writes runs_, then returns the whole row; *ratios is the sum of exp d.
  Part ReadParts(const RowTokens& row, double* ratios);

  // Sums of rows' means.
  double ratio_[kNumLevels] = {};
  double difference_[kNumLevels] = {};

  std::vector<Part> runs_;
  RowNumbers log_ratio_, exp_, old_, rollout_, expm1_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_DRIFT_PASS_H_
