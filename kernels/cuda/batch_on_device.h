// One batch on a device: where its arrays are there, what has to be copied, and
// the kernels of each walk.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_BATCH_ON_DEVICE_H_
#define COUNTERWEIGHT_KERNELS_CUDA_BATCH_ON_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "kernels/batch.h"
#include "kernels/cuda/batch_blocks.h"
#include "kernels/cuda/cuda_corrector.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/launch_mask.h"
#include "kernels/cuda/placement.h"
#include "kernels/plan/plan.h"
#include "kernels/walk/row_totals.h"
#include "kernels/walk/schedule.h"

namespace counterweight::kernels {

// A copy between the device and memory that lies at `placement`.
struct Transfer {
  char* to;
  const char* from;
  size_t bytes;
  Placement placement;
};

enum class Walk : uint8_t {
  kUpload,         // none
  kMask,           // counts a mask that lies on the device
  kStatistics,     // of the whole batch, ahead of a loss
  kSelectionKeys,  // likewise
  kMain,           // outputs and sums
  kDivide,         // weights by their mean, after kMain
};

// The plan, the batch and the memory of the outputs must outlive it.
class BatchOnDevice {
 public:
  BatchOnDevice(const Plan& plan, const Batch& batch, const Outputs& outputs);

  // Finds what lies on the device already, wants memory for the rest, and cuts
  // blocks. REQUIRES: the device is current; called once, before the others.
  cudaError_t Place(int device, const CudaOptions& options,
                    DeviceMemory* memory);

  const std::vector<Block>& blocks() const { return blocks_.blocks; }

  // The inputs of the block's walks.
  std::vector<Transfer> Uploads(const Block& block) const;
  // Those of them that kMask needs. After LeaveOutMasks(), Uploads() has the
  // others alone.
  std::vector<Transfer> UploadsOfMask(const Block& block) const;
  void LeaveOutMasks() { leaves_out_masks_ = true; }
  // The outputs of a walk over the block that the caller gets; `keys` of
  // kSelectionKeys is host memory [num_positions].
  std::vector<Transfer> Downloads(const Block& block, Walk walk,
                                  float* keys) const;

  // Copies of the arrays of a context with host pointers. The walks that follow
  // use that context.
  std::vector<Transfer> SetContext(const LossContext& context);

  // Puts the walk over a block into the stream. REQUIRES: its bytes are there
  // when the stream begins it. divisor: of kDivide.
  cudaError_t Launch(Walk walk, const Block& block, double divisor,
                     cudaStream_t stream);
  // Makes counts of the mask zero. Once, before the first walk.
  cudaError_t Clear(cudaStream_t stream) const;
  // Numbers that a walk over all blocks leaves for RecordOf(), row_totals.h.
  int64_t num_totals() const { return ColumnsOfRows(plan_).totals; }
  // Copies of them to `totals`; for kStatistics, of row_tokens [num_sequences],
  // which may be null; of a mask on the device, after kMask, the position of
  // the first byte that is neither 0 nor 1, or kAllBoolean.
  std::vector<Transfer> Results(double* totals, double* row_tokens,
                                uint64_t* first_bad) const;

  // True if the mask lies on the device, so that the host cannot read it.
  bool has_mask_here() const { return has_mask_here_; }
  // True if kMask is to count it there, which takes less time than the host.
  bool counts_mask() const { return mask_tokens_ != nullptr; }
  // Copies of kMask's count of tokens [num_sequences], and of a byte.
  Transfer MaskTokens(uint64_t* tokens) const;
  Transfer MaskByte(int64_t position, uint8_t* value) const;

  // The weights are final only after kDivide, or as kMain wrote them if their
  // mean is 1.
  bool weights_wait() const { return weights_wait_; }

 private:
  // Device memory for an output, or the output itself where it lies there.
  template <class T>
  struct Output {
    T* host = nullptr;  // null: nothing to copy
    T* device = nullptr;
    T* allocated = nullptr;
    Placement placement = Placement::kHere;
  };

  cudaError_t PlaceInputs(int device, const CudaOptions& options,
                          DeviceMemory* memory);
  cudaError_t PlaceOutputs(int device, DeviceMemory* memory);
  // True if no tensor and no output of tokens crosses the bus.
  bool IsResident() const;
  template <class T>
  cudaError_t PlaceOutput(T* output, int64_t count, int device,
                          DeviceMemory* memory, Output<T>* place);
  template <class T>
  static T* Where(const Output<T>& output) {
    return output.device != nullptr ? output.device : output.allocated;
  }
  DeviceJob JobFor(const Block& block) const;
  cudaError_t MakeSegments(const Block& block, cudaStream_t stream);
  cudaError_t LaunchStep(const Step& step, const DeviceJob& job,
                         cudaStream_t stream) const;
  cudaError_t LaunchSchedule(Purpose purpose, const DeviceJob& job,
                             const Block& block, cudaStream_t stream);
  cudaError_t LaunchMain(const DeviceJob& job, const Block& block,
                         cudaStream_t stream);

  const Plan& plan_;
  const Batch& batch_;
  const Outputs outputs_;
  BatchBlocks blocks_;
  const int64_t positions_;
  const bool weights_wait_;
  LossContext context_ = kNoLossContext;  // device pointers
  int shared_bytes_ = 0;

  // Null where the tensor is not read or lies on the device.
  char* inputs_[kNumTensors] = {};
  Placement placements_[kNumTensors] = {};
  Placement mask_placement_ = Placement::kPageable;
  bool has_mask_here_ = false;
  bool leaves_out_masks_ = false;
  uint8_t* mask_ = nullptr;
  uint64_t* mask_tokens_ = nullptr;
  uint64_t* first_bad_ = nullptr;
  Output<float> weights_;
  Output<uint8_t> keep_mask_;
  Output<uint16_t> token_reasons_;
  Output<uint16_t> sequence_reasons_;
  Output<float> gradient_;
  bool has_long_rows_ = false;  // of several segments
  DeviceSegment* segments_ = nullptr;
  int64_t segments_made_ = 0;  // so many of the first ones are filled
  int64_t* offsets_ = nullptr;
  int64_t* row_segments_ = nullptr;
  char* records_ = nullptr;  // PackedSegment
  PrefixBase* bases_ = nullptr;
  RowState* states_ = nullptr;
  char* rows_ = nullptr;  // PackedRow; null where no loss adds to them
  double* totals_ = nullptr;
  uint32_t* reasons_ = nullptr;
  double* row_factors_ = nullptr;
  double* row_tokens_ = nullptr;
  uint8_t* selected_ = nullptr;
  float* keys_ = nullptr;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_BATCH_ON_DEVICE_H_
