// One correction on a device: blocks of rows are uploaded, computed and
// downloaded on three streams, beside the blocks of other runs.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_CUDA_RUN_H_
#define COUNTERWEIGHT_KERNELS_CUDA_CUDA_RUN_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/cuda/batch_on_device.h"
#include "kernels/cuda/cuda_corrector.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/device_pool.h"
#include "kernels/cuda/device_share.h"
#include "kernels/cuda/pipe.h"
#include "kernels/walk/loss_batch.h"
#include "kernels/walk/partial_layout.h"

namespace counterweight::kernels {

// A device and what its runs share.
struct SharedDevice {
  int index;
  CudaOptions options;
  std::unique_ptr<DevicePool> pool;
  DeviceShare share;
};

// Until a result is returned or the run is destroyed, nothing else may touch
// the outputs; afterwards no transfer is in flight, or what is, the caller's
// stream waits for.
class CudaRun final : public CorrectRun, private LossBackend {
 public:
  // `caller`: the stream of Corrector::BeginInStream.
  CudaRun(SharedDevice* device, const CorrectionSpec& spec, const Batch& batch,
          const Outputs& outputs, StopRequest stop,
          std::optional<cudaStream_t> caller = std::nullopt);
  ~CudaRun() override;

  void Advance(int64_t rows, bool has_mask) override;
  Turn TakeTurn(std::function<void()> wake) override;
  CorrectResult Finish() override;

 private:
  // Progress of a walk: blocks that were launched, and blocks with fetched
  // pageable outputs.
  struct Progress {
    size_t launched = 0;
    size_t fetched = 0;
    int64_t first_step = 0;  // of block 0
  };
  struct Failure {
    cudaError_t error = cudaSuccess;
    const char* doing = "";
  };

  // Functions that return bool return false if the run is over (failed or
  // stopped) or, with waits = false, if they would block.
  bool Start(bool waits);
  // Finds what the run needs of the device.
  bool Place();
  // False, and a failure, if the device can never have that much.
  bool MayFit();
  // Allocates. REQUIRES: it has its share.
  bool Allocate();
  bool Prepare();
  // Keep the run behind the caller's stream, and then that behind the run's
  // outputs; do nothing without one.
  bool Enter();
  bool Leave();
  // Counts the mask on the device, if the host cannot or takes longer.
  bool CountMask();
  bool UploadMasks();
  // Stores what CountMask found wrong in *result.
  bool JudgeMask(CorrectResult* result);
  bool Download(const Transfer& transfer);
  bool Work(CorrectResult* result);
  bool MustStop();
  bool is_empty() const { return batch_.num_sequences == 0; }
  bool Check(cudaError_t error, const char* doing);

  // Puts a copy into the upload stream; *done of its bytes are under way.
  bool Enqueue(const Transfer& transfer, bool waits, size_t* done);
  bool Upload(size_t block, bool waits);
  bool UploadContext(const LossContext& context);
  // Enqueues a block of a walk on the streams.
  bool Step(Walk walk, size_t index, bool waits);
  // Fetches pageable outputs of a block that Step was called for.
  bool Fetch(Walk walk, size_t index, int64_t step);
  bool WalkBlocks(Walk walk, Progress* progress);
  bool FetchTotals(RowRecord* total, double* row_tokens);
  // Waits for the slot's block. REQUIRES: it has one.
  bool Retire(int slot, bool waits);
  bool RetireAll();
  // Waits for what is in flight and releases everything.
  void End();
  // The columns of totals_.
  CorrectResult Result(const RowRecord& total);
  CorrectResult Unfinished() const;

  bool Statistics(const LossContext& context, double* row_tokens,
                  RowRecord* total) override;
  bool CountRows(const Batch& batch, double* row_tokens) override;
  bool SelectionKeys(const LossContext& context, float* keys) override;

  SharedDevice& device_;
  const Plan plan_;
  const Batch batch_;
  const StopRequest stop_;
  const std::optional<cudaStream_t> caller_;
  BatchOnDevice on_device_;
  DeviceMemory memory_;
  std::unique_ptr<Pipe> pipe_;
  DeviceShare::Waiter waiter_;
  bool waits_ = false;     // waiter_ is in line, or has its share
  int64_t reserved_ = -1;  // -1: no share yet
  bool placed_ = false;
  bool finished_ = false;
  bool started_ = false;
  bool counted_ = false;
  bool prepared_ = false;
  bool stopped_ = false;
  Failure failure_;

  // Index of the block in upload; earlier blocks are in flight or uploaded. Of
  // it, `transfer_done_` bytes of the transfer number `transfer_` and all
  // transfers before that are enqueued.
  size_t uploading_ = 0;
  std::vector<Transfer> transfers_;
  size_t transfer_ = 0;
  size_t transfer_done_ = 0;

  Progress main_;
  int64_t steps_ = 0;
  struct SlotUse {
    bool busy = false;
    bool timed = false;
  };
  SlotUse slots_[kBlocksInFlight];
  double device_seconds_ = 0.0;
  std::vector<double> totals_;          // of the last walk
  std::optional<PartialBins> partial_;  // if wanted
  double divisor_ = 1.0;
  float* keys_ = nullptr;
  uint64_t first_bad_ = kAllBoolean;  // of the mask, once the sums are here
  LossBatch loss_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_CUDA_RUN_H_
