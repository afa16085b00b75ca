#include "kernels/cuda/batch_on_device.h"

namespace counterweight::kernels {
namespace {

template <class T>
cudaError_t AllocateAndUpload(DeviceBuffer<T>* buffer, const T* from,
                              int64_t size, cudaStream_t stream) {
  COUNTERWEIGHT_CUDA_TRY(buffer->Allocate(size, stream));
  return buffer->Upload(from);
}

}  // namespace

BatchOnDevice::BatchOnDevice(const Plan& plan, const Batch& batch,
                             cudaStream_t stream)
    : plan_(plan),
      batch_(batch),
      stream_(stream),
      positions_(batch.offsets[batch.num_sequences]) {
  for (int64_t row = 0; row < batch.num_sequences; ++row) {
    first_cuts_.push_back(static_cast<int64_t>(cuts_.size()));
    const int64_t end = batch.offsets[row + 1];
    int64_t begin = batch.offsets[row];
    any_row_has_several_ =
        any_row_has_several_ || end - begin > kSegmentPositions;
    do {
      const int64_t next =
          begin + kSegmentPositions < end ? begin + kSegmentPositions : end;
      cuts_.push_back({begin, next, row});
      begin = next;
    } while (begin < end);
  }
  first_cuts_.push_back(static_cast<int64_t>(cuts_.size()));
}

cudaError_t BatchOnDevice::Upload(const Outputs& outputs) {
  job_.batch = batch_;
  COUNTERWEIGHT_CUDA_TRY(UploadInputs());
  COUNTERWEIGHT_CUDA_TRY(AllocateOutputs(outputs));
  return AllocateSums();
}

cudaError_t BatchOnDevice::UploadInputs() {
  for (int r = 0; r < kNumInputRoles; ++r) {
    if ((plan_.inputs >> r & 1u) == 0) continue;
    const TensorView& tensor = batch_.tensors[r];
    COUNTERWEIGHT_CUDA_TRY(
        AllocateAndUpload(&inputs_[r], static_cast<const char*>(tensor.data),
                          positions_ * SizeOf(tensor.dtype), stream_));
    job_.batch.tensors[r].data = inputs_[r].data();
  }
  COUNTERWEIGHT_CUDA_TRY(
      AllocateAndUpload(&mask_, batch_.response_mask, positions_, stream_));
  job_.batch.response_mask = mask_.data();
  return cudaSuccess;
}

cudaError_t BatchOnDevice::AllocateOutputs(const Outputs& outputs) {
  if (outputs.weights != nullptr) {
    COUNTERWEIGHT_CUDA_TRY(weights_.Allocate(positions_, stream_));
  }
  if (outputs.keep_mask != nullptr) {
    COUNTERWEIGHT_CUDA_TRY(keep_mask_.Allocate(positions_, stream_));
  }
  if (outputs.token_reasons != nullptr) {
    COUNTERWEIGHT_CUDA_TRY(token_reasons_.Allocate(positions_, stream_));
  }
  if (outputs.sequence_reasons != nullptr) {
    COUNTERWEIGHT_CUDA_TRY(
        sequence_reasons_.Allocate(batch_.num_sequences, stream_));
  }
  if (outputs.gradient != nullptr) {
    COUNTERWEIGHT_CUDA_TRY(gradient_.Allocate(positions_, stream_));
  }
  COUNTERWEIGHT_CUDA_TRY(reasons_.Allocate(batch_.num_sequences, stream_));
  COUNTERWEIGHT_CUDA_TRY(reasons_.Clear());
  job_.outputs.weights = weights_.data();
  job_.outputs.keep_mask = keep_mask_.data();
  job_.outputs.token_reasons = token_reasons_.data();
  job_.outputs.gradient = gradient_.data();
  job_.reasons = reasons_.data();
  return cudaSuccess;
}

cudaError_t BatchOnDevice::AllocateSums() {
  const auto segments = static_cast<int64_t>(cuts_.size());
  COUNTERWEIGHT_CUDA_TRY(
      AllocateAndUpload(&segments_, cuts_.data(), segments, stream_));
  COUNTERWEIGHT_CUDA_TRY(AllocateAndUpload(&row_segments_, first_cuts_.data(),
                                           batch_.num_sequences + 1, stream_));
  COUNTERWEIGHT_CUDA_TRY(records_.Allocate(segments, stream_));
  COUNTERWEIGHT_CUDA_TRY(
      bases_.Allocate(segments * plan_.num_prefixes, stream_));
  COUNTERWEIGHT_CUDA_TRY(states_.Allocate(batch_.num_sequences, stream_));
  COUNTERWEIGHT_CUDA_TRY(rows_.Allocate(batch_.num_sequences, stream_));
  job_.num_segments = segments;
  job_.segments = segments_.data();
  job_.row_segments = row_segments_.data();
  job_.records = records_.data();
  job_.bases = bases_.data();
  job_.states = states_.data();
  job_.rows = rows_.data();
  return cudaSuccess;
}

cudaError_t BatchOnDevice::SetContext(const LossContext& context) {
  job_.loss = context;
  if (context.row_factors != nullptr) {
    row_factors_ = {};
    COUNTERWEIGHT_CUDA_TRY(AllocateAndUpload(&row_factors_, context.row_factors,
                                             batch_.num_sequences, stream_));
    job_.loss.row_factors = row_factors_.data();
  }
  if (context.selected != nullptr) {
    selected_ = {};
    COUNTERWEIGHT_CUDA_TRY(
        AllocateAndUpload(&selected_, context.selected, positions_, stream_));
    job_.loss.selected = selected_.data();
  }
  return cudaSuccess;
}

// Rows of one segment repeat passes that they do not need: the same state comes
// out again.
cudaError_t BatchOnDevice::LaunchDecisions() {
  COUNTERWEIGHT_CUDA_TRY(bases_.Clear());
  COUNTERWEIGHT_CUDA_TRY(LaunchInitialStates(plan_, job_, stream_));
  const int passes =
      any_row_has_several_ ? plan_.passes : plan_.single_segment_passes;
  for (int pass = 0; pass < passes; ++pass) {
    COUNTERWEIGHT_CUDA_TRY(LaunchStatistics(plan_, job_, stream_));
    COUNTERWEIGHT_CUDA_TRY(LaunchSettle(plan_, job_, stream_));
  }
  return cudaSuccess;
}

cudaError_t BatchOnDevice::Walk(const LossContext& context, RowRecord* total) {
  COUNTERWEIGHT_CUDA_TRY(SetContext(context));
  if (plan_.streams || plan_.guesses) {
    COUNTERWEIGHT_CUDA_TRY(bases_.Clear());
    COUNTERWEIGHT_CUDA_TRY(LaunchInitialStates(plan_, job_, stream_));
    COUNTERWEIGHT_CUDA_TRY(LaunchBoth(plan_, job_, stream_));
    COUNTERWEIGHT_CUDA_TRY(LaunchSettle(plan_, job_, stream_));
    if (plan_.guesses) {
      DeviceJob wrong = job_;
      wrong.fired_rows_only = true;
      COUNTERWEIGHT_CUDA_TRY(LaunchOutputs(plan_, wrong, stream_));
      if (plan_.loss.active) {
        COUNTERWEIGHT_CUDA_TRY(LaunchSettleLoss(plan_, wrong, stream_));
      }
    }
  } else {
    COUNTERWEIGHT_CUDA_TRY(LaunchDecisions());
    if (plan_.loss.hands_back) {
      DeviceJob loss_only = job_;
      loss_only.outputs = Outputs{};
      COUNTERWEIGHT_CUDA_TRY(LaunchOutputs(plan_, loss_only, stream_));
      COUNTERWEIGHT_CUDA_TRY(LaunchSettleLoss(plan_, job_, stream_));
    }
    COUNTERWEIGHT_CUDA_TRY(LaunchOutputs(plan_, job_, stream_));
    if (plan_.loss.active) {
      COUNTERWEIGHT_CUDA_TRY(LaunchSettleLoss(plan_, job_, stream_));
    }
  }
  COUNTERWEIGHT_CUDA_TRY(LaunchFoldRows(plan_, job_, stream_));
  return cudaMemcpyAsync(total, job_.rows, sizeof(*total),
                         cudaMemcpyDeviceToHost, stream_);
}

bool BatchOnDevice::Statistics(const LossContext& context, double* row_tokens,
                               RowRecord* total) {
  error_ = RunStatistics(context, row_tokens, total);
  return error_ == cudaSuccess;
}

bool BatchOnDevice::SelectionKeys(const LossContext& context, float* keys) {
  error_ = RunSelectionKeys(context, keys);
  return error_ == cudaSuccess;
}

cudaError_t BatchOnDevice::RunStatistics(const LossContext& context,
                                         double* row_tokens, RowRecord* total) {
  COUNTERWEIGHT_CUDA_TRY(SetContext(context));
  DeviceBuffer<double> tokens;
  COUNTERWEIGHT_CUDA_TRY(tokens.Allocate(batch_.num_sequences, stream_));
  job_.row_tokens = tokens.data();
  COUNTERWEIGHT_CUDA_TRY(LaunchDecisions());
  job_.row_tokens = nullptr;
  COUNTERWEIGHT_CUDA_TRY(LaunchFoldRows(plan_, job_, stream_));
  COUNTERWEIGHT_CUDA_TRY(tokens.Download(row_tokens));
  COUNTERWEIGHT_CUDA_TRY(cudaMemcpyAsync(total, job_.rows, sizeof(*total),
                                         cudaMemcpyDeviceToHost, stream_));
  return cudaStreamSynchronize(stream_);
}

cudaError_t BatchOnDevice::RunSelectionKeys(const LossContext& context,
                                            float* keys) {
  COUNTERWEIGHT_CUDA_TRY(SetContext(context));
  DeviceBuffer<float> on_device;
  COUNTERWEIGHT_CUDA_TRY(on_device.Allocate(positions_, stream_));
  COUNTERWEIGHT_CUDA_TRY(LaunchDecisions());
  DeviceJob job = job_;
  job.outputs = Outputs{};
  job.loss.selection_keys = on_device.data();
  COUNTERWEIGHT_CUDA_TRY(LaunchOutputs(plan_, job, stream_));
  COUNTERWEIGHT_CUDA_TRY(on_device.Download(keys));
  return cudaStreamSynchronize(stream_);
}

cudaError_t BatchOnDevice::Download(const Outputs& outputs, double normalizer) {
  if (outputs.weights != nullptr) {
    // A loss has taken normalized weights, and they were written as such.
    if (normalizer != 1.0 && !plan_.loss.active) {
      COUNTERWEIGHT_CUDA_TRY(
          LaunchDivide(job_.outputs.weights, positions_, normalizer, stream_));
    }
    COUNTERWEIGHT_CUDA_TRY(weights_.Download(outputs.weights));
  }
  if (outputs.keep_mask != nullptr) {
    COUNTERWEIGHT_CUDA_TRY(keep_mask_.Download(outputs.keep_mask));
  }
  if (outputs.token_reasons != nullptr) {
    COUNTERWEIGHT_CUDA_TRY(token_reasons_.Download(outputs.token_reasons));
  }
  if (outputs.gradient != nullptr) {
    COUNTERWEIGHT_CUDA_TRY(gradient_.Download(outputs.gradient));
  }
  if (outputs.sequence_reasons != nullptr) {
    COUNTERWEIGHT_CUDA_TRY(LaunchNarrow(job_.reasons, batch_.num_sequences,
                                        sequence_reasons_.data(), stream_));
    COUNTERWEIGHT_CUDA_TRY(
        sequence_reasons_.Download(outputs.sequence_reasons));
  }
  return cudaStreamSynchronize(stream_);
}

}  // namespace counterweight::kernels
