// Batches in the form of tests (rows of values) and of kernels (bytes).
#ifndef COUNTERWEIGHT_TESTS_TESTING_BATCH_BUILDER_H_
#define COUNTERWEIGHT_TESTS_TESTING_BATCH_BUILDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/batch.h"

namespace counterweight::kernels {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// One sequence. A role without values is not sent; every row of a batch has the
// same roles. A batch without tokens sends all.
struct Row {
  std::vector<uint8_t> mask;
  std::array<std::vector<float>, kNumInputRoles> values;

  std::vector<float>& operator[](InputRole role) {
    return values[static_cast<int>(role)];
  }
  const std::vector<float>& operator[](InputRole role) const {
    return values[static_cast<int>(role)];
  }
  int64_t size() const { return static_cast<int64_t>(mask.size()); }
};

// rollout_log_probs 0 and old_log_probs = log_ratios, so that old/rollout is
// exactly `log_ratios`; every token counts.
Row RowOf(const std::vector<float>& log_ratios);

// The layout of rows in memory.
struct Layout {
  DType dtype = DType::kF32;
  // 0: packed; else every row has this many positions.
  int64_t padded_length = 0;
  // Values of the padding.
  float padding = 0.0f;
  // Bytes between an aligned address and each tensor's first.
  int misalignment = 0;
};

// Owns the bytes of a batch. Values that a half type cannot hold are rounded to
// the nearest.
class OwnedBatch {
 public:
  explicit OwnedBatch(const std::vector<Row>& rows, Layout layout = {});

  // groups: [num_sequences], in [-1, num_groups).
  void SetGroups(std::vector<int32_t> groups, int64_t num_groups) {
    groups_ = std::move(groups);
    num_groups_ = num_groups;
  }
  // divisors: [num_sequences], > 0.
  void SetRowDivisors(std::vector<double> divisors) {
    row_divisors_ = std::move(divisors);
  }

  Batch view() const;
  int64_t num_positions() const { return offsets_.back(); }
  int64_t num_sequences() const { return view().num_sequences; }

 private:
  Layout layout_;
  std::vector<int64_t> offsets_{0};
  std::array<std::vector<std::byte>, kNumInputRoles> tensors_;
  std::array<bool, kNumInputRoles> sent_{};
  std::vector<uint8_t> mask_;
  std::vector<int32_t> groups_;
  int64_t num_groups_ = 0;
  std::vector<double> row_divisors_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_BATCH_BUILDER_H_
