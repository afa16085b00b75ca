// One correction on a device: blocks of rows go up, are computed and come back
// on three streams, while other runs' blocks do the same.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_CUDA_RUN_H_
#define COUNTERWEIGHT_KERNELS_CUDA_CUDA_RUN_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/cuda/batch_on_device.h"
#include "kernels/cuda/cuda_corrector.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/device_share.h"
#include "kernels/cuda/pipe.h"
#include "kernels/walk/loss_batch.h"

namespace counterweight::kernels {

// A device and what its runs share.
struct SharedDevice {
  int index;
  CudaOptions options;
  DeviceShare share;
};

// Until a result is returned or the run is destroyed, nothing else may touch
// the outputs; afterwards no transfer is in flight.
class CudaRun final : public CorrectRun, private LossBackend {
 public:
  CudaRun(SharedDevice* device, const CorrectionSpec& spec, const Batch& batch,
          const Outputs& outputs, StopRequest stop);
  ~CudaRun() override;

  void Advance(int64_t rows, bool has_mask) override;
  CorrectResult Finish() override;

 private:
  // How far a walk is: blocks whose launch was made, and those of them whose
  // pageable outputs have been fetched.
  struct Progress {
    size_t launched = 0;
    size_t fetched = 0;
    int64_t first_step = 0;  // of block 0
  };
  struct Failure {
    cudaError_t error = cudaSuccess;
    const char* doing = "";
  };

  // Functions that return bool: false if the run is over (failed or stopped)
  // or, with waits = false, if it would take waiting.
  bool Start(bool waits);
  bool Prepare();
  bool Work(CorrectResult* result);
  bool MustStop();
  bool Check(cudaError_t error, const char* doing);

  bool Upload(size_t block, bool waits);
  bool UploadContext(const LossContext& context);
  // Puts a block of a walk into the streams.
  bool Step(Walk walk, size_t block, bool waits);
  // Fetches pageable outputs of a block that Step was called for.
  bool Fetch(Walk walk, size_t block, int64_t step);
  bool WalkBlocks(Walk walk, Progress* progress);
  bool FetchFold(RowRecord* total, double* row_tokens);
  // Waits for the slot's block. REQUIRES: it has one.
  bool Retire(int slot, bool waits);
  bool RetireAll();
  // Gives everything back; what is in flight is waited for first.
  void End();
  CorrectResult Unfinished() const;

  bool Statistics(const LossContext& context, double* row_tokens,
                  RowRecord* total) override;
  bool SelectionKeys(const LossContext& context, float* keys) override;

  SharedDevice& device_;
  const Plan plan_;
  const Batch batch_;
  const StopRequest stop_;
  BatchOnDevice on_device_;
  const size_t num_blocks_;
  DeviceMemory memory_;
  std::unique_ptr<Pipe> pipe_;
  int64_t reserved_ = -1;  // -1: no share yet
  bool placed_ = false;
  bool finished_ = false;
  bool started_ = false;
  bool prepared_ = false;
  bool stopped_ = false;
  Failure failure_;

  // The blocks before it are on their way or there; of it, `transfer_done_`
  // bytes of the transfer number `transfer_`, and the transfers before that.
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
  double divisor_ = 1.0;
  float* keys_ = nullptr;
  LossBatch loss_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_CUDA_RUN_H_
