// The tokens that the rules look at one by one: whole rows, chosen by a hash of
// the row's index, so that the cost of a call is bounded.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_SAMPLE_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_SAMPLE_H_

#include <cstdint>
#include <vector>

#include "kernels/batch.h"
#include "kernels/doctor/passes.h"

namespace counterweight::kernels::doctor {

// Most positions of a sample, those outside the mask included.
inline constexpr int64_t kMostExamined = 65536;

// The tensors of log-probs in the order of the passes. The first two are the
// pair that is compared: what sampled, and what is trained.
struct Streams {
  int count = 0;
  InputRole roles[kMostStreams] = {};
  TensorView tensors[kMostStreams];
};

// A row of the sample: its tokens [begin, end) of the arrays.
struct SampledRow {
  int64_t sequence;
  int64_t begin;
  int64_t end;

  int64_t size() const { return end - begin; }
};

// Tokens of the mask that have finite log-probs alone, row after row.
struct Sample {
  // For each token its log-probs. Before the first element and behind the last
  // one there is room for the passes.
  std::vector<float> storage[kMostStreams];
  std::vector<float> link_storage;
  std::vector<float> weight;
  // Positions in the batch.
  std::vector<int64_t> place;
  std::vector<SampledRow> rows;  // none without tokens
  int64_t tokens = 0;
  // Positions outside the mask where the first stream is finite and not 0, in
  // the rows of the sample that have tokens.
  int64_t sampled_outside = 0;

  const float* values(int stream) const { return storage[stream].data() + 1; }
  const float* link() const { return link_storage.data() + 1; }
  PairInput Pair(int x, int y) const;
};

Sample TakeSample(const Batch& batch, const Streams& streams);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_SAMPLE_H_
