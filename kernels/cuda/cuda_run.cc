#include "kernels/cuda/cuda_run.h"

#include <string>
#include <utility>

#include "kernels/float_modes.h"
#include "kernels/walk/batch_sums.h"
#include "kernels/walk/row_record.h"

namespace counterweight::kernels {
namespace {

constexpr char kAllocating[] = "allocating device memory";
constexpr char kUploading[] = "uploading the batch";
constexpr char kComputing[] = "computing";
constexpr char kDownloading[] = "downloading the answer";

cudaError_t CopyDirectly(const Transfer& transfer, cudaStream_t stream) {
  return cudaMemcpyAsync(transfer.to, transfer.from, transfer.bytes,
                         cudaMemcpyDefault, stream);
}

}  // namespace

CudaRun::CudaRun(SharedDevice* device, const CorrectionSpec& spec,
                 const Batch& batch, const Outputs& outputs, StopRequest stop)
    : device_(*device),
      plan_(MakePlan(spec)),
      batch_(batch),
      stop_(std::move(stop)),
      on_device_(plan_, batch_, outputs, device->options.block_positions),
      num_blocks_(on_device_.blocks().size()) {}

CudaRun::~CudaRun() { End(); }

bool CudaRun::Check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return true;
  failure_ = {error, doing};
  cudaGetLastError();  // it is no error of whoever asks next
  return false;
}

bool CudaRun::MustStop() {
  stopped_ = stopped_ || (stop_ && stop_());
  return stopped_;
}

// Everything that the run will ever hold, at once.
bool CudaRun::Start(bool waits) {
  if (started_) return true;
  if (!placed_ && !Check(on_device_.Place(device_.index, &memory_),
                         "looking for the tensors")) {
    return false;
  }
  placed_ = true;
  const int64_t bytes = memory_.bytes();
  if (!waits && !device_.share.TryTake(bytes)) return false;
  if (waits) {
    if (bytes > device_.share.capacity()) {
      failure_ = {cudaErrorMemoryAllocation, kAllocating};
      return false;
    }
    stopped_ = !device_.share.Take(bytes, stop_);
    if (stopped_) return false;
  }
  reserved_ = bytes;
  pipe_ = device_.share.TakePipe();
  if (pipe_ == nullptr) {
    pipe_ = std::make_unique<Pipe>(device_.options.bounce_bytes);
    if (!Check(pipe_->Create(), "creating streams")) return false;
  }
  // The upload stream may write only what the compute stream has allocated.
  cudaEvent_t allocated = pipe_->slots[0].computed;
  started_ =
      Check(memory_.Allocate(pipe_->compute), kAllocating) &&
      Check(cudaEventRecord(allocated, pipe_->compute), kAllocating) &&
      Check(cudaStreamWaitEvent(pipe_->upload, allocated, 0), kAllocating);
  return started_;
}

void CudaRun::Advance(int64_t rows, bool has_mask) {
  if (failure_.error != cudaSuccess || stopped_ || num_blocks_ == 0) return;
  const DefaultFloatModes modes;
  if (!Check(cudaSetDevice(device_.index), "choosing the device") ||
      MustStop() || !Start(false)) {
    return;
  }
  // As on the CPU: the mask tells a loss what it counts, unless tokens are
  // dropped or other sums of the batch enter. Until then blocks go up only.
  const bool mask_tells =
      plan_.spec.non_finite != NonFinitePolicy::kDrop && !plan_.loss.by_batch;
  const bool computes =
      !plan_.loss.active || (mask_tells && has_mask && Prepare());
  const std::vector<Block>& blocks = on_device_.blocks();
  const size_t& next = computes ? main_.launched : uploading_;
  const Walk walk = computes ? Walk::kMain : Walk::kUpload;
  if (computes && next == 0) main_.first_step = steps_;
  while (next < num_blocks_ && blocks[next].last_row <= rows) {
    if (MustStop() || !Step(walk, next, false)) return;
    if (computes) ++main_.launched;
  }
}

bool CudaRun::Upload(size_t block, bool waits) {
  if (block < uploading_) return true;
  if (transfers_.empty()) {
    transfers_ = on_device_.Uploads(on_device_.blocks()[block]);
  }
  for (; transfer_ < transfers_.size(); ++transfer_, transfer_done_ = 0) {
    const Transfer& transfer = transfers_[transfer_];
    if (transfer.bytes == 0) continue;
    if (transfer.placement != Placement::kPageable) {
      if (!Check(CopyDirectly(transfer, pipe_->upload), kUploading)) {
        return false;
      }
      continue;
    }
    if (!Check(
            pipe_->to_device.Upload(transfer.to, transfer.from, transfer.bytes,
                                    waits, pipe_->upload, &transfer_done_),
            kUploading) ||
        transfer_done_ < transfer.bytes) {
      return false;
    }
  }
  transfers_.clear();
  transfer_ = 0;
  ++uploading_;
  return true;
}

bool CudaRun::UploadContext(const LossContext& context) {
  for (const Transfer& transfer : on_device_.SetContext(context)) {
    size_t done = 0;
    if (!Check(
            pipe_->to_device.Upload(transfer.to, transfer.from, transfer.bytes,
                                    true, pipe_->upload, &done),
            kUploading)) {
      return false;
    }
  }
  return true;
}

bool CudaRun::Retire(int slot, bool waits) {
  const Pipe::Slot& events = pipe_->slots[slot];
  const cudaError_t error =
      waits ? cudaEventSynchronize(events.done) : cudaEventQuery(events.done);
  if (error == cudaErrorNotReady || !Check(error, kComputing)) return false;
  slots_[slot].busy = false;
  if (!slots_[slot].timed) return true;
  float milliseconds = 0.0f;
  if (!Check(cudaEventElapsedTime(&milliseconds, events.begun, events.computed),
             kComputing)) {
    return false;
  }
  device_seconds_ += static_cast<double>(milliseconds) * 1e-3;
  return true;
}

bool CudaRun::RetireAll() {
  for (int slot = 0; slot < kBlocksInFlight; ++slot) {
    if (slots_[slot].busy && !Retire(slot, true)) return false;
  }
  return true;
}

bool CudaRun::Step(Walk walk, size_t index, bool waits) {
  const int slot = static_cast<int>(steps_ % kBlocksInFlight);
  if ((slots_[slot].busy && !Retire(slot, waits)) || !Upload(index, waits)) {
    return false;
  }
  const Block& block = on_device_.blocks()[index];
  const Pipe::Slot& events = pipe_->slots[slot];
  cudaStream_t last = pipe_->upload;
  if (walk != Walk::kUpload) {
    last = pipe_->compute;
    if (!Check(cudaEventRecord(events.uploaded, pipe_->upload), kUploading) ||
        !Check(cudaStreamWaitEvent(last, events.uploaded, 0), kUploading) ||
        !Check(cudaEventRecord(events.begun, last), kComputing) ||
        !Check(on_device_.Launch(walk, block, divisor_, last), kComputing) ||
        !Check(cudaEventRecord(events.computed, last), kComputing)) {
      return false;
    }
    for (const Transfer& transfer : on_device_.Downloads(block, walk, keys_)) {
      if (transfer.placement == Placement::kPageable) continue;
      if (last != pipe_->download) {
        last = pipe_->download;
        if (!Check(cudaStreamWaitEvent(last, events.computed, 0),
                   kDownloading)) {
          return false;
        }
      }
      if (!Check(CopyDirectly(transfer, last), kDownloading)) return false;
    }
  }
  if (!Check(cudaEventRecord(events.done, last), kComputing)) return false;
  slots_[slot] = {true, walk != Walk::kUpload};
  ++steps_;
  return true;
}

bool CudaRun::Fetch(Walk walk, size_t index, int64_t step) {
  // The event of the block's own step, or of a later one if blocks went ahead.
  const cudaEvent_t computed = pipe_->slots[step % kBlocksInFlight].computed;
  bool waits = true;
  for (const Transfer& transfer :
       on_device_.Downloads(on_device_.blocks()[index], walk, keys_)) {
    if (transfer.placement != Placement::kPageable) continue;
    if (waits && !Check(cudaStreamWaitEvent(pipe_->download, computed, 0),
                        kDownloading)) {
      return false;
    }
    waits = false;
    if (!Check(pipe_->from_device.Download(transfer.to, transfer.from,
                                           transfer.bytes, pipe_->download),
               kDownloading)) {
      return false;
    }
  }
  return true;
}

// While a block is computed, this thread fetches the one before it.
bool CudaRun::WalkBlocks(Walk walk, Progress* progress) {
  if (progress->launched == 0) progress->first_step = steps_;
  while (progress->fetched < num_blocks_) {
    if (MustStop()) return false;
    if (progress->launched < num_blocks_) {
      if (!Step(walk, progress->launched, true)) return false;
      ++progress->launched;
    }
    const size_t ready =
        progress->launched < num_blocks_ ? progress->launched - 1 : num_blocks_;
    for (; progress->fetched < ready; ++progress->fetched) {
      const auto index = static_cast<int64_t>(progress->fetched);
      if (!Fetch(walk, progress->fetched, progress->first_step + index)) {
        return false;
      }
    }
  }
  return Check(pipe_->from_device.Drain(), kDownloading);
}

bool CudaRun::FetchFold(RowRecord* total, double* row_tokens) {
  const int slot = static_cast<int>(steps_++ % kBlocksInFlight);
  if (slots_[slot].busy && !Retire(slot, true)) return false;
  const Pipe::Slot& events = pipe_->slots[slot];
  if (!Check(cudaEventRecord(events.begun, pipe_->compute), kComputing) ||
      !Check(on_device_.LaunchFold(pipe_->compute), kComputing) ||
      !Check(cudaEventRecord(events.computed, pipe_->compute), kComputing) ||
      !Check(cudaStreamWaitEvent(pipe_->download, events.computed, 0),
             kDownloading)) {
    return false;
  }
  for (const Transfer& transfer : on_device_.Results(total, row_tokens)) {
    if (!Check(pipe_->from_device.Download(transfer.to, transfer.from,
                                           transfer.bytes, pipe_->download),
               kDownloading)) {
      return false;
    }
  }
  if (!Check(cudaEventRecord(events.done, pipe_->download), kDownloading)) {
    return false;
  }
  slots_[slot] = {true, true};
  return Check(pipe_->from_device.Drain(), kDownloading);
}

bool CudaRun::Statistics(const LossContext& context, double* row_tokens,
                         RowRecord* total) {
  Progress progress;
  return UploadContext(context) && WalkBlocks(Walk::kStatistics, &progress) &&
         FetchFold(total, row_tokens);
}

bool CudaRun::SelectionKeys(const LossContext& context, float* keys) {
  Progress progress;
  keys_ = keys;
  return UploadContext(context) && WalkBlocks(Walk::kSelectionKeys, &progress);
}

bool CudaRun::Prepare() {
  if (prepared_) return true;
  prepared_ =
      PrepareLoss(plan_, batch_, this, &loss_) && UploadContext(loss_.context);
  return prepared_;
}

bool CudaRun::Work(CorrectResult* result) {
  if (failure_.error != cudaSuccess || MustStop() ||
      !Check(cudaSetDevice(device_.index), "choosing the device") ||
      !Start(true) || (plan_.loss.active && !Prepare())) {
    return false;
  }
  RowRecord total;
  if (!WalkBlocks(Walk::kMain, &main_) || !FetchFold(&total, nullptr)) {
    return false;
  }
  *result = MakeResult(plan_, batch_, total);
  if (on_device_.weights_wait() && result->status == CorrectStatus::kOk) {
    divisor_ = result->sums.weight.normalizer;
    Progress progress;
    if (!WalkBlocks(Walk::kDivide, &progress)) return false;
  }
  return RetireAll();
}

CorrectResult CudaRun::Finish() {
  // The plan and what losses count are computed on this thread.
  const DefaultFloatModes modes;
  CorrectResult result;
  if (num_blocks_ == 0) {
    if (stop_ && stop_()) return {.status = CorrectStatus::kStopped};
    if (plan_.loss.active) PrepareLoss(plan_, batch_, nullptr, &loss_);
    RowRecord nothing{};
    clear(plan_, nothing);
    result = MakeResult(plan_, batch_, nothing);
  } else {
    finished_ = Work(&result);
    End();
    if (!finished_) return Unfinished();
  }
  result.sums.loss.count = loss_.count;
  result.device_seconds = device_seconds_;
  return result;
}

CorrectResult CudaRun::Unfinished() const {
  CorrectResult result;
  if (failure_.error == cudaSuccess) {
    result.status = CorrectStatus::kStopped;
    return result;
  }
  result.status = failure_.error == cudaErrorMemoryAllocation
                      ? CorrectStatus::kDeviceFull
                      : CorrectStatus::kDeviceError;
  result.device_error =
      std::string(failure_.doing) + ": " + cudaGetErrorString(failure_.error);
  return result;
}

void CudaRun::End() {
  if (reserved_ < 0) return;
  cudaSetDevice(device_.index);
  if (pipe_ != nullptr) {
    const bool is_quiet = pipe_->Quiesce();
    memory_.Free(pipe_->compute);
    // Memory is in the device's pool again before another run counts on it.
    if (is_quiet) cudaStreamSynchronize(pipe_->compute);
    cudaGetLastError();  // it is no error of whoever asks next
    if (is_quiet && failure_.error == cudaSuccess) {
      device_.share.KeepPipe(std::move(pipe_));
    }
    pipe_.reset();
  }
  device_.share.GiveBack(reserved_);
  reserved_ = -1;
}

}  // namespace counterweight::kernels
