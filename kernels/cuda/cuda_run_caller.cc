// The part of a CudaRun that belongs to a caller on the same device: its stream
// and its mask.
#include <vector>

#include "kernels/cuda/cuda_run.h"

namespace counterweight::kernels {
namespace {

constexpr char kFollowing[] = "following the caller's stream";
constexpr char kCounting[] = "counting the mask";

}  // namespace

bool CudaRun::Enter() {
  if (!caller_) return true;
  // The upload stream follows the compute stream's allocations.
  return Check(cudaEventRecord(pipe_->entered, *caller_), kFollowing) &&
         Check(cudaStreamWaitEvent(pipe_->compute, pipe_->entered, 0),
               kFollowing);
}

bool CudaRun::Leave() {
  if (!caller_) return true;
  cudaEvent_t left = pipe_->left;
  const auto follow = [&](cudaStream_t stream, cudaStream_t other) {
    return Check(cudaEventRecord(left, other), kFollowing) &&
           Check(cudaStreamWaitEvent(stream, left, 0), kFollowing);
  };
  // Outputs that are not in place go through the download stream, and what it
  // reads is freed in the compute stream.
  return follow(pipe_->compute, pipe_->download) &&
         follow(*caller_, pipe_->compute);
}

// Those of blocks that are on their way have theirs.
bool CudaRun::UploadMasks() {
  if (!transfers_.empty() && !Upload(uploading_, true)) return false;
  for (size_t i = uploading_; i < on_device_.blocks().size(); ++i) {
    for (const Transfer& transfer :
         on_device_.UploadsOfMask(on_device_.blocks()[i])) {
      size_t done = 0;
      if (!Enqueue(transfer, true, &done)) return false;
    }
  }
  on_device_.LeaveOutMasks();
  return true;
}

bool CudaRun::CountMask() {
  if (counted_ || prepared_ || !on_device_.counts_mask()) return true;
  Progress progress;
  counted_ = UploadMasks() && WalkBlocks(Walk::kMask, &progress);
  return counted_;
}

bool CudaRun::Download(const Transfer& transfer) {
  return Check(pipe_->from_device.Download(transfer.to, transfer.from,
                                           transfer.bytes, pipe_->download),
               kCounting) &&
         Check(pipe_->from_device.Drain(), kCounting);
}

bool CudaRun::CountRows(const Batch& batch, double* row_tokens) {
  if (!counted_) return LossBackend::CountRows(batch, row_tokens);
  std::vector<uint64_t> tokens(static_cast<size_t>(batch.num_sequences));
  const Pipe::Slot& last = pipe_->slots[(steps_ - 1) % kBlocksInFlight];
  if (!Check(cudaStreamWaitEvent(pipe_->download, last.computed, 0),
             kCounting) ||
      !Download(on_device_.MaskTokens(tokens.data()))) {
    return false;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    row_tokens[i] = static_cast<double>(tokens[i]);
  }
  return true;
}

bool CudaRun::JudgeMask(CorrectResult* result) {
  if (!on_device_.has_mask_here()) return true;
  if (first_bad_ == kAllBoolean) return true;
  uint8_t value = 0;
  const auto at = static_cast<int64_t>(first_bad_);
  if (!Download(on_device_.MaskByte(at, &value))) return false;
  result->status = CorrectStatus::kBadMask;
  result->bad_mask = {at, value};
  return true;
}

}  // namespace counterweight::kernels
