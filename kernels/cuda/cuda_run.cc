#include "kernels/cuda/cuda_run.h"

#include <string>
#include <utility>

#include "kernels/cuda/callers_device.h"
#include "kernels/cuda/probe.h"
#include "kernels/float_modes.h"
#include "kernels/walk/batch_sums.h"
#include "kernels/walk/make_plan.h"
#include "kernels/walk/row_record.h"

namespace counterweight::kernels {
namespace {

constexpr char kAllocating[] = "allocating device memory";

}  // namespace

CudaRun::CudaRun(SharedDevice* device, const CorrectionSpec& spec,
                 const Batch& batch, const Outputs& outputs, StopRequest stop,
                 std::optional<cudaStream_t> caller)
    : device_(*device),
      plan_(MakePlan(spec)),
      batch_(batch),
      stop_(std::move(stop)),
      caller_(caller),
      on_device_(plan_, batch_, outputs),
      memory_(device->options.separate_arrays) {
  if (outputs.partial_sums) partial_.emplace(plan_);
}

CudaRun::~CudaRun() {
  const CallersDevice restored;
  End();
}

bool CudaRun::Check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return true;
  failure_ = {error, doing};
  cudaGetLastError();  // clears the sticky error
  return false;
}

bool CudaRun::MustStop() {
  stopped_ = stopped_ || (stop_ && stop_());
  return stopped_;
}

bool CudaRun::Place() {
  placed_ = placed_ ||
            Check(on_device_.Place(device_.index, device_.options, &memory_),
                  "looking for the tensors");
  return placed_;
}

bool CudaRun::MayFit() {
  if (memory_.bytes() <= device_.share.capacity()) return true;
  failure_ = {cudaErrorMemoryAllocation, kAllocating};
  return false;
}

// A run reserves all that it will hold at once, so that runs cannot deadlock.
bool CudaRun::Start(bool waits) {
  if (started_) return true;
  if (!Place()) return false;
  const int64_t bytes = memory_.bytes();
  if (!waits && !device_.share.TryTake(bytes)) return false;
  if (waits) {
    if (!MayFit()) return false;
    stopped_ = !device_.share.Take(bytes, stop_);
    if (stopped_) return false;
  }
  reserved_ = bytes;
  return Allocate();
}

bool CudaRun::Allocate() {
  pipe_ = device_.share.TakePipe();
  if (pipe_ == nullptr) {
    pipe_ = std::make_unique<Pipe>(device_.options.bounce_bytes);
    if (!Check(pipe_->Create(), "creating streams")) return false;
  }
  // The upload stream may write only what the compute stream has allocated.
  cudaEvent_t allocated = pipe_->slots[0].computed;
  started_ =
      Enter() &&
      Check(memory_.Allocate(device_.pool->get(), pipe_->compute),
            kAllocating) &&
      Check(on_device_.Clear(pipe_->compute), kAllocating) &&
      Check(cudaEventRecord(allocated, pipe_->compute), kAllocating) &&
      Check(cudaStreamWaitEvent(pipe_->upload, allocated, 0), kAllocating);
  return started_;
}

Turn CudaRun::TakeTurn(std::function<void()> wake) {
  const auto has_failed = [this] { return failure_.error != cudaSuccess; };
  if (started_ || stopped_ || has_failed() || is_empty()) return Turn::kNow;
  const DefaultFloatModes modes;
  const CallersDevice restored;
  // Finish reports what goes wrong here.
  if (!Check(cudaSetDevice(device_.index), "choosing the device") || !Place()) {
    return Turn::kNow;
  }
  if (!MayFit()) return Turn::kNever;
  if (waits_) {
    if (!device_.share.HasShare(waiter_)) return Turn::kLater;
  } else {
    waiter_ = {.bytes = memory_.bytes(), .wake = std::move(wake)};
    waits_ = true;
    if (!device_.share.Request(&waiter_)) return Turn::kLater;
  }
  waits_ = false;
  reserved_ = waiter_.bytes;
  Allocate();
  return failure_.error == cudaErrorMemoryAllocation ? Turn::kNever
                                                     : Turn::kNow;
}

void CudaRun::Advance(int64_t rows, bool has_mask) {
  if (failure_.error != cudaSuccess || stopped_ || is_empty()) return;
  const DefaultFloatModes modes;
  const CallersDevice restored;
  if (!Check(cudaSetDevice(device_.index), "choosing the device") ||
      MustStop() || !Start(false)) {
    return;
  }
  // Its count would have to be waited for.
  if (on_device_.has_mask_here()) return;
  // Blocks only go up until a loss knows what it counts.
  const bool computes =
      !plan_.loss.active || (MaskTellsLoss(plan_) && has_mask && Prepare());
  const std::vector<Block>& blocks = on_device_.blocks();
  const size_t& next = computes ? main_.launched : uploading_;
  const Walk walk = computes ? Walk::kMain : Walk::kUpload;
  if (computes && next == 0) main_.first_step = steps_;
  while (next < blocks.size() && blocks[next].last_row <= rows) {
    if (MustStop() || !Step(walk, next, false)) return;
    if (computes) ++main_.launched;
  }
}

bool CudaRun::Statistics(const LossContext& context, double* row_tokens,
                         RowRecord* total) {
  Progress progress;
  return UploadContext(context) && WalkBlocks(Walk::kStatistics, &progress) &&
         FetchTotals(total, row_tokens);
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
      !Start(true) || !CountMask() || (plan_.loss.active && !Prepare())) {
    return false;
  }
  RowRecord total;
  // The caller's stream need not wait for the sums.
  if (!WalkBlocks(Walk::kMain, &main_) ||
      (!on_device_.weights_wait() && !Leave()) ||
      !FetchTotals(&total, nullptr)) {
    return false;
  }
  *result = Result(total);
  if (!JudgeMask(result)) return false;
  if (!on_device_.weights_wait()) return RetireAll();
  // The stream waits for the division, not this thread, which does not time it.
  if (caller_ && !RetireAll()) return false;
  if (result->status == CorrectStatus::kOk) {
    divisor_ = result->sums.weight.normalizer;
    Progress progress;
    if (!WalkBlocks(Walk::kDivide, &progress)) return false;
  }
  return caller_ ? Leave() : RetireAll();
}

CorrectResult CudaRun::Finish() {
  // The plan and what losses count are computed on this thread.
  const DefaultFloatModes modes;
  const CallersDevice restored;
  CorrectResult result;
  if (is_empty()) {
    if (stop_ && stop_()) return {.status = CorrectStatus::kStopped};
    if (plan_.loss.active) PrepareLoss(plan_, batch_, nullptr, &loss_);
    RowRecord nothing{};
    clear_row(plan_, nothing);
    totals_.assign(static_cast<size_t>(on_device_.num_totals()), 0.0);
    result = Result(nothing);
  } else {
    finished_ = Work(&result);
    End();
    if (!finished_) return Unfinished();
  }
  result.SetLossCount(loss_.count);
  result.device_seconds = device_seconds_;
  return result;
}

CorrectResult CudaRun::Result(const RowRecord& total) {
  if (!partial_) return MakeResult(plan_, batch_, total, nullptr);
  partial_->bins = std::move(totals_);
  return MakeResult(plan_, batch_, total, &*partial_);
}

CorrectResult CudaRun::Unfinished() const {
  CorrectResult result;
  result.device = device_.index;
  if (failure_.error == cudaSuccess) {
    result.status = CorrectStatus::kStopped;
    return result;
  }
  if (failure_.error == cudaErrorMemoryAllocation) {
    result.status = CorrectStatus::kDeviceFull;
  } else {
    result.status = IsDeviceAlive(device_.index) ? CorrectStatus::kDeviceError
                                                 : CorrectStatus::kDeviceLost;
  }
  result.device_error =
      std::string(failure_.doing) + ": " + cudaGetErrorString(failure_.error);
  return result;
}

void CudaRun::End() {
  if (std::exchange(waits_, false) && device_.share.Leave(&waiter_)) {
    reserved_ = waiter_.bytes;
  }
  if (reserved_ < 0) return;
  cudaSetDevice(device_.index);
  if (pipe_ != nullptr) {
    // Leave() put the compute stream behind the others. The sums were last but
    // for a division, so that all transfers of the rings are over.
    const bool has_left = finished_ && caller_.has_value();
    if (has_left) pipe_->Forget();
    const bool is_quiet = has_left || pipe_->Quiesce();
    memory_.Free(pipe_->compute);
    // The memory must be back in the device's pool before another run counts on
    // it. One that has left frees it in the order of its stream, which the
    // driver knows.
    if (is_quiet && !has_left) pipe_->Wait(pipe_->compute);
    cudaGetLastError();  // clears the sticky error
    if (is_quiet && failure_.error == cudaSuccess) {
      device_.share.KeepPipe(std::move(pipe_));
    }
    pipe_.reset();
  }
  device_.share.GiveBack(reserved_);
  reserved_ = -1;
}

}  // namespace counterweight::kernels
