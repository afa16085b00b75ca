// The walks of a CudaRun: which stream each step uses, and which events it
// waits for.
#include <vector>

#include "kernels/cuda/cuda_run.h"
#include "kernels/cuda/wait.h"
#include "kernels/walk/row_totals.h"

namespace counterweight::kernels {
namespace {

constexpr char kUploading[] = "uploading the batch";
constexpr char kComputing[] = "computing";
constexpr char kDownloading[] = "downloading the answer";

cudaError_t CopyDirectly(const Transfer& transfer, cudaStream_t stream) {
  return cudaMemcpyAsync(transfer.to, transfer.from, transfer.bytes,
                         cudaMemcpyDefault, stream);
}

}  // namespace

bool CudaRun::Enqueue(const Transfer& transfer, bool waits, size_t* done) {
  if (transfer.bytes == 0) return true;
  if (transfer.placement != Placement::kPageable) {
    return Check(CopyDirectly(transfer, pipe_->upload), kUploading);
  }
  return Check(
             pipe_->to_device.Upload(transfer.to, transfer.from, transfer.bytes,
                                     waits, pipe_->upload, done),
             kUploading) &&
         *done == transfer.bytes;
}

bool CudaRun::Upload(size_t block, bool waits) {
  if (block < uploading_) return true;
  if (transfers_.empty()) {
    transfers_ = on_device_.Uploads(on_device_.blocks()[block]);
  }
  for (; transfer_ < transfers_.size(); ++transfer_, transfer_done_ = 0) {
    if (!Enqueue(transfers_[transfer_], waits, &transfer_done_)) return false;
  }
  transfers_.clear();
  transfer_ = 0;
  ++uploading_;
  return true;
}

bool CudaRun::UploadContext(const LossContext& context) {
  for (const Transfer& transfer : on_device_.SetContext(context)) {
    size_t done = 0;
    if (!Enqueue(transfer, true, &done)) return false;
  }
  return true;
}

bool CudaRun::Retire(int slot, bool waits) {
  const Pipe::Slot& events = pipe_->slots[slot];
  const cudaError_t error =
      waits ? WaitFor(events.done) : cudaEventQuery(events.done);
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // clears the sticky error
    return false;
  }
  if (!Check(error, kComputing)) return false;
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
  if (slots_[slot].busy && !Retire(slot, waits)) return false;
  if (walk != Walk::kMask && !Upload(index, waits)) return false;
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
  const size_t num_blocks = on_device_.blocks().size();
  if (progress->launched == 0) progress->first_step = steps_;
  while (progress->fetched < num_blocks) {
    if (MustStop()) return false;
    if (progress->launched < num_blocks) {
      if (!Step(walk, progress->launched, true)) return false;
      ++progress->launched;
    }
    const size_t ready =
        progress->launched < num_blocks ? progress->launched - 1 : num_blocks;
    for (; progress->fetched < ready; ++progress->fetched) {
      const auto index = static_cast<int64_t>(progress->fetched);
      if (!Fetch(walk, progress->fetched, progress->first_step + index)) {
        return false;
      }
    }
  }
  return Check(pipe_->from_device.Drain(), kDownloading);
}

bool CudaRun::FetchTotals(RowRecord* total, double* row_tokens) {
  const int slot = static_cast<int>(steps_++ % kBlocksInFlight);
  if (slots_[slot].busy && !Retire(slot, true)) return false;
  const Pipe::Slot& events = pipe_->slots[slot];
  if (!Check(cudaEventRecord(events.computed, pipe_->compute), kComputing) ||
      !Check(cudaStreamWaitEvent(pipe_->download, events.computed, 0),
             kDownloading)) {
    return false;
  }
  totals_.resize(static_cast<size_t>(on_device_.num_totals()));
  for (const Transfer& transfer :
       on_device_.Results(totals_.data(), row_tokens, &first_bad_)) {
    if (!Check(pipe_->from_device.Download(transfer.to, transfer.from,
                                           transfer.bytes, pipe_->download),
               kDownloading)) {
      return false;
    }
  }
  if (!Check(cudaEventRecord(events.done, pipe_->download), kDownloading)) {
    return false;
  }
  slots_[slot] = {true, false};
  if (!Check(pipe_->from_device.Drain(), kDownloading)) return false;
  *total = RecordOf(plan_, totals_.data());
  return true;
}

}  // namespace counterweight::kernels
