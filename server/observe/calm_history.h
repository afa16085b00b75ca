// The calm levels of one run's weights, from its first steps with such a bound.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_CALM_HISTORY_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_CALM_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "server/engine/calm_level.h"

namespace counterweight::server {

// The level of one kind of weights. Not thread-safe.
//
// A step that reads it before the level is known is one of those that make it,
// and never gets it; every other step gets it, always the same. So all batches
// of a step have one bound, in whichever order steps overlap or are run again.
class CalmHistory {
 public:
  // A step is calm up to so many times the median of the mean square log
  // weight, which is about twice k3.
  static constexpr double kMostOfMedian = 3.0;

  explicit CalmHistory(const CalmWeights& of) : of_(of) {}

  const CalmWeights& of() const { return of_; }

  // The level for a batch of `step`.
  CalmLevel At(int64_t step);
  // Adds the weights of a batch to its step, if that is one of those that make
  // the level.
  void Add(const CalmBatch& batch);

 private:
  using Counts = kernels::doctor::WeightCounts;
  struct Step {
    int64_t step;
    std::unique_ptr<Counts> counts;  // null once the level is known
  };

  Step* Find(int64_t step);
  // The level of the steps so far; is_calm if they are enough.
  CalmLevel Measure() const;

  const CalmWeights of_;
  std::deque<Step> steps_;  // oldest first by their first batch
  std::optional<CalmLevel> level_;
};

// Those of a run. Not thread-safe.
class CalmHistories {
 public:
  // Kinds of weights of a run.
  static constexpr size_t kMost = 4;

  // CalmHistory::At of these weights' history, which begins now if there is
  // none; nullopt: the run has kMost others.
  std::optional<CalmLevel> At(const CalmWeights& weights, int64_t step);
  void Add(const CalmBatch& batch);

 private:
  std::deque<CalmHistory> histories_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_CALM_HISTORY_H_
