// The newest optimizer steps of a run, with batches as their parts.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_RUN_STEPS_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_RUN_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/partial_sums.h"
#include "server/engine/publication.h"

namespace counterweight::server {

// A step as far as its parts are known.
struct StepBatch {
  int64_t step = 0;
  int64_t parts = 0;  // batches
  // False: another part showed a later step before.
  bool is_newest = true;
  // The sums of the parts.
  PublishedBatch batch;
};

// Adds parts to the newest two steps, exactly: neither the order of parts nor
// their sizes change a bit. Parts of two methods in one step are two sums, of
// which the last part's is shown. Not thread-safe.
class RunSteps {
 public:
  static constexpr size_t kMaxSteps = 2;
  // Sums of other methods in a step replace the oldest.
  static constexpr size_t kMaxSums = 4;

  // So many parts in a row that are older than the newest two steps are those
  // of a run that went back to a checkpoint, not late ones.
  static constexpr int kMostLate = 8;

  // Adds `part`, the exact sums of `batch`, and stores its step in *step.
  // False: it is late, and nothing was added. The last of kMostLate in a row
  // begins anew with its step.
  bool Add(const StepPart& part, const PublishedBatch& batch, StepBatch* step);

 private:
  struct Sums {
    int64_t step = 0;
    kernels::PartialSums sums;
  };

  Sums& FindOrAdd(const StepPart& part);

  std::vector<Sums> sums_;  // oldest first by their first part
  int num_late_ = 0;        // parts since the last that was added
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_RUN_STEPS_H_
