// The tokens of a corrected batch, a row at a time: for metrics of other
// systems that no sum of the kernels has.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CORRECTED_TOKENS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CORRECTED_TOKENS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/batch.h"
#include "kernels/corrector.h"
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
  // By InputRole. A token with a number that is not finite, in a tensor that
  // the spec reads, has 0 in all of these; other tensors are as they were sent.
  std::span<const double> values[kernels::kNumInputRoles];

  int64_t size() const { return static_cast<int64_t>(mask.size()); }
  std::span<const double> of(kernels::InputRole role) const {
    return values[static_cast<int>(role)];
  }
};

// Numbers of a row, in memory that the next row uses again.
using RowNumbers = std::vector<double>;

// out = a - b; resized.
void Subtract(std::span<const double> a, std::span<const double> b,
              RowNumbers* out);

// e^x and e^x - 1, or log x, of each number: the same bits on every machine.
// The results are resized.
void Exponentials(std::span<const double> x, RowNumbers* exp,
                  RowNumbers* expm1);
void Logarithms(std::span<const double> x, RowNumbers* log);

// Reads rows of host memory; what is given must outlive it.
class CorrectedTokens {
 public:
  // keep, weights: [num_positions], as the correction by `spec` wrote them.
  // stop: called between rows, may be empty.
  CorrectedTokens(const kernels::Batch& batch,
                  const kernels::CorrectionSpec& spec, const uint8_t* keep,
                  const float* weights, kernels::StopRequest stop = {});

  int64_t num_rows() const { return batch_.num_sequences; }
  bool has(kernels::InputRole role) const {
    return batch_.tensor(role).data != nullptr;
  }

  // Calls f(row) for each row in order; the row is valid during the call. Ends
  // early if the result is no longer wanted.
  template <class F>
  void ForEachRow(const F& f) const {
    Buffers buffers;
    for (int64_t row = 0; row < num_rows(); ++row) {
      if (stop_ && stop_()) {
        is_stopped_ = true;
        return;
      }
      f(Read(row, &buffers));
    }
  }
  // True if a ForEachRow ended early: what was made of it is of no use.
  bool is_stopped() const { return is_stopped_; }

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
  // Calls f for the numbers of each tensor that the spec reads.
  template <class F>
  void ForRead(Buffers* buffers, const F& f) const {
    for (int r = 0; r < kernels::kNumInputRoles; ++r) {
      const bool is_read = (read_ >> r & 1u) != 0;
      if (is_read && batch_.tensors[r].data != nullptr) f(buffers->values[r]);
    }
  }

  const kernels::Batch& batch_;
  const kernels::NonFinitePolicy policy_;
  const uint32_t read_;  // bits of InputRole
  const uint8_t* const keep_;
  const float* const weights_;
  const kernels::StopRequest stop_;
  mutable bool is_stopped_ = false;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CORRECTED_TOKENS_H_
