// One request on a device: its tensors, its sums, and the walks over them.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_BATCH_ON_DEVICE_H_
#define COUNTERWEIGHT_KERNELS_CUDA_BATCH_ON_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "kernels/batch.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/launch.h"
#include "kernels/walk/loss_batch.h"

#define COUNTERWEIGHT_CUDA_TRY(call)                        \
  do {                                                      \
    const cudaError_t error_of_call = (call);               \
    if (error_of_call != cudaSuccess) return error_of_call; \
  } while (false)

namespace counterweight::kernels {

// REQUIRES: the batch has rows. Plan, batch and stream outlive it.
class BatchOnDevice final : public LossBackend {
 public:
  BatchOnDevice(const Plan& plan, const Batch& batch, cudaStream_t stream);

  cudaError_t Upload(const Outputs& outputs);

  // The walk that writes outputs; the fold of all rows goes to *total, which is
  // there when the stream has been waited for.
  cudaError_t Walk(const LossContext& context, RowRecord* total);

  // Waits.
  cudaError_t Download(const Outputs& outputs, double normalizer);

  // LossBackend; error() tells what failed.
  bool Statistics(const LossContext& context, double* row_tokens,
                  RowRecord* total) override;
  bool SelectionKeys(const LossContext& context, float* keys) override;
  cudaError_t error() const { return error_; }

 private:
  cudaError_t UploadInputs();
  cudaError_t AllocateOutputs(const Outputs& outputs);
  cudaError_t AllocateSums();
  // Puts a context with host pointers into job_, its arrays onto the device.
  cudaError_t SetContext(const LossContext& context);
  // Every pass over statistics.
  cudaError_t LaunchDecisions();
  cudaError_t RunStatistics(const LossContext& context, double* row_tokens,
                            RowRecord* total);
  cudaError_t RunSelectionKeys(const LossContext& context, float* keys);

  const Plan& plan_;
  const Batch& batch_;
  const cudaStream_t stream_;
  const int64_t positions_;
  std::vector<DeviceSegment> cuts_;
  std::vector<int64_t> first_cuts_;  // [num_sequences + 1]
  bool any_row_has_several_ = false;
  cudaError_t error_ = cudaSuccess;
  DeviceJob job_{};

  DeviceBuffer<char> inputs_[kNumInputRoles];
  DeviceBuffer<uint8_t> mask_;
  DeviceBuffer<float> weights_;
  DeviceBuffer<uint8_t> keep_mask_;
  DeviceBuffer<uint16_t> token_reasons_;
  DeviceBuffer<uint16_t> sequence_reasons_;
  DeviceBuffer<float> gradient_;
  DeviceBuffer<DeviceSegment> segments_;
  DeviceBuffer<int64_t> row_segments_;
  DeviceBuffer<SegmentRecord> records_;
  DeviceBuffer<PrefixBase> bases_;
  DeviceBuffer<RowState> states_;
  DeviceBuffer<RowRecord> rows_;
  DeviceBuffer<uint32_t> reasons_;
  DeviceBuffer<double> row_factors_;
  DeviceBuffer<uint8_t> selected_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_BATCH_ON_DEVICE_H_
