// The tokens of a corrected batch, a row at a time: for metrics of other
// systems that no sum of the kernels has.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CORRECTED_TOKENS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CORRECTED_TOKENS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/batch.h"
#include "kernels/spec.h"

namespace counterweight::server {

// Positions of a row, masked ones too. A tensor that was not sent is empty.
struct RowTokens {
  int64_t row;
  // 1 = counts, after kDrop.
  std::span<const uint8_t> mask;
  // 1 = also stays in the loss.
  std::span<const uint8_t> keep;
  // As Outputs::weights.
  std::span<const double> weights;
  // By InputRole. What is not finite is 0, and its log-probs too.
  std::span<const double> values[kernels::kNumInputRoles];

  int64_t size() const { return static_cast<int64_t>(mask.size()); }
  std::span<const double> of(kernels::InputRole role) const {
    return values[static_cast<int>(role)];
  }
};

// Numbers of a row, in memory that the next row uses again.
using RowNumbers = std::vector<double>;

// e^x and e^x - 1, or log x, of each number: the same bits on every machine.
// The results are resized.
void Exponentials(std::span<const double> x, RowNumbers* exp,
                  RowNumbers* expm1);
void Logarithms(std::span<const double> x, RowNumbers* log);

// Reads rows of host memory; what is given must outlive it.
class CorrectedTokens {
 public:
  // keep, weights: [num_positions], as the correction wrote them.
  CorrectedTokens(const kernels::Batch& batch, kernels::NonFinitePolicy policy,
                  const uint8_t* keep, const float* weights)
      : batch_(batch), policy_(policy), keep_(keep), weights_(weights) {}

  int64_t num_rows() const { return batch_.num_sequences; }
  bool has(kernels::InputRole role) const {
    return batch_.tensor(role).data != nullptr;
  }

  // Calls f(row) for each row in order; the row is valid during the call.
  template <class F>
  void ForEachRow(const F& f) const {
    Buffers buffers;
    for (int64_t row = 0; row < num_rows(); ++row) f(Read(row, &buffers));
  }

  // Bytes that a batch with a longest row of so many positions takes, and at
  // most 12 RowNumbers of a pass over it.
  static int64_t ScratchBytes(int64_t longest);

 private:
  struct Buffers {
    std::vector<float> raw;
    std::vector<uint8_t> mask;
    std::vector<double> weights;
    std::vector<double> values[kernels::kNumInputRoles];
  };

  RowTokens Read(int64_t row, Buffers* buffers) const;

  const kernels::Batch& batch_;
  const kernels::NonFinitePolicy policy_;
  const uint8_t* const keep_;
  const float* const weights_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CORRECTED_TOKENS_H_
