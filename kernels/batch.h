// Views of one batch and of its results. Nothing here owns memory.
#ifndef COUNTERWEIGHT_KERNELS_BATCH_H_
#define COUNTERWEIGHT_KERNELS_BATCH_H_

#include <cstdint>

#include "kernels/policy_versions.h"

namespace counterweight::kernels {

enum class DType : uint8_t { kF32, kBF16, kF16 };

constexpr int64_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// [num_positions] little-endian elements of any alignment; data may be null:
// the tensor was not sent. Tensors and outputs may also lie in memory of the
// device that computes (Corrector::OpenDeviceMemory); offsets and groups are
// host memory, and so is response_mask but in Corrector::BeginInStream.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
};

// The input tensors, also the index into Batch::tensors. Those after kRef are
// no inputs of a request: TurnMeans makes them.
enum class InputRole : uint8_t {
  kRollout,
  kOld,
  kCurrent,
  kAdvantages,
  kRef,
  kMeans,
  kOtherMeans,
  kZeros
};
inline constexpr int kNumInputRoles = 5;
inline constexpr int kNumTensors = 8;

// Row i is positions [offsets[i], offsets[i + 1]). A padded [B, T] batch has
// offsets i * T.
struct Batch {
  int64_t num_sequences = 0;
  // [num_sequences + 1], offsets[0] = 0, not descending.
  const int64_t* offsets = nullptr;
  // Log-probs in nats, advantages.
  TensorView tensors[kNumTensors];
  // [num_positions]; any non-zero byte counts as 1.
  const uint8_t* response_mask = nullptr;
  // [num_sequences] group of each row, in [0, num_groups), or -1: the row
  // has no part in a reduction by groups. Null unless LossReduction reads
  // groups.
  const int32_t* groups = nullptr;
  int64_t num_groups = 0;
  // [num_sequences] finite divisors > 0 of the rows' sums. Null unless
  // LossReduction reads them. Host memory.
  const double* row_divisors = nullptr;
  // Versions in host memory, for BatchSums::staleness; null: not wanted. A
  // backend may leave them, and versions that are wrong, to MeasureStaleness():
  // StalenessSums::measured is 0 then.
  const PolicyVersions* versions = nullptr;

  const TensorView& tensor(InputRole role) const {
    return tensors[static_cast<int>(role)];
  }
};

// Parts of a batch; each has sums of its own.
struct RowParts {
  // [num_sequences] the part of each row, in [0, count), or -1: it is in none.
  const int32_t* of_row = nullptr;
  int64_t count = 0;
};

// Destinations of per-token and per-sequence results; null if not wanted.
struct Outputs {
  // [num_positions] importance weights, 0 where response_mask is 0; 1 where it
  // is 1 if the spec has no weight (0 where a rule zeroes).
  float* weights = nullptr;
  // [num_positions] 1 = stays in the loss.
  uint8_t* keep_mask = nullptr;
  // [num_positions] bit r = rule r dropped the token or zeroed its weight;
  // kReasonNonFinite.
  uint16_t* token_reasons = nullptr;
  // [num_sequences] the OR of the sequence's token reasons.
  uint16_t* sequence_reasons = nullptr;
  // [num_positions] d loss / d current_log_probs; exactly 0 where response_mask
  // is 0, and where keep_mask is, unless a KL penalty over the original tokens
  // or a mean over them (LossSpec::over) reaches the token.
  float* gradient = nullptr;
  // CorrectResult::partial is wanted.
  bool partial_sums = false;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_BATCH_H_
