#include "kernels/cuda/batch_on_device.h"

#include <algorithm>

#include "kernels/cuda/cuda_try.h"
#include "kernels/walk/packed_records.h"

namespace counterweight::kernels {
namespace {

// Elements [first, last) of both arrays.
template <class T>
Transfer Copy(T* to, const T* from, int64_t first, int64_t last,
              Placement placement) {
  return {reinterpret_cast<char*>(to + first),
          reinterpret_cast<const char*>(from + first),
          static_cast<size_t>(last - first) * sizeof(T), placement};
}

}  // namespace

BatchOnDevice::BatchOnDevice(const Plan& plan, const Batch& batch,
                             const Outputs& outputs)
    : plan_(plan),
      batch_(batch),
      outputs_(outputs),
      positions_(batch.offsets[batch.num_sequences]),
      weights_wait_(DividesWeights(plan, outputs)) {}

template <class T>
cudaError_t BatchOnDevice::PlaceOutput(T* output, int64_t count, int device,
                                       DeviceMemory* memory, Output<T>* place) {
  if (output == nullptr || count == 0) return cudaSuccess;
  COUNTERWEIGHT_CUDA_TRY(
      FindPlacement(output, sizeof(T), device, &place->placement));
  if (place->placement == Placement::kHere) {
    place->device = output;
  } else {
    place->host = output;
    memory->Want(&place->allocated, count);
  }
  return cudaSuccess;
}

cudaError_t BatchOnDevice::PlaceInputs(int device, const CudaOptions& options,
                                       DeviceMemory* memory) {
  if (positions_ == 0) return cudaSuccess;
  for (int r = 0; r < kNumTensors; ++r) {
    if ((plan_.inputs >> r & 1u) == 0) continue;
    const TensorView& tensor = batch_.tensors[r];
    COUNTERWEIGHT_CUDA_TRY(FindPlacement(tensor.data, SizeOf(tensor.dtype),
                                         device, &placements_[r]));
    if (placements_[r] == Placement::kHere) continue;
    memory->Want(&inputs_[r], positions_ * SizeOf(tensor.dtype));
  }
  COUNTERWEIGHT_CUDA_TRY(
      FindPlacement(batch_.response_mask, 1, device, &mask_placement_));
  has_mask_here_ = mask_placement_ == Placement::kHere;
  if (!has_mask_here_) memory->Want(&mask_, positions_);
  const bool loss_counts = plan_.loss.active &&
                           plan_.spec.non_finite != NonFinitePolicy::kDrop &&
                           positions_ > options.host_counts;
  if (has_mask_here_ || loss_counts) {
    memory->Want(&mask_tokens_, batch_.num_sequences);
    memory->Want(&first_bad_, 1);
  }
  return cudaSuccess;
}

cudaError_t BatchOnDevice::PlaceOutputs(int device, DeviceMemory* memory) {
  COUNTERWEIGHT_CUDA_TRY(
      PlaceOutput(outputs_.weights, positions_, device, memory, &weights_));
  COUNTERWEIGHT_CUDA_TRY(
      PlaceOutput(outputs_.keep_mask, positions_, device, memory, &keep_mask_));
  COUNTERWEIGHT_CUDA_TRY(PlaceOutput(outputs_.token_reasons, positions_, device,
                                     memory, &token_reasons_));
  COUNTERWEIGHT_CUDA_TRY(PlaceOutput(outputs_.sequence_reasons,
                                     batch_.num_sequences, device, memory,
                                     &sequence_reasons_));
  return PlaceOutput(outputs_.gradient, positions_, device, memory, &gradient_);
}

bool BatchOnDevice::IsResident() const {
  for (int r = 0; r < kNumTensors; ++r) {
    const bool is_read = (plan_.inputs >> r & 1u) != 0;
    if (is_read && placements_[r] != Placement::kHere) return false;
  }
  return weights_.host == nullptr && keep_mask_.host == nullptr &&
         token_reasons_.host == nullptr && gradient_.host == nullptr;
}

cudaError_t BatchOnDevice::Place(int device, const CudaOptions& options,
                                 DeviceMemory* memory) {
  shared_bytes_ = options.shared_bytes;
  COUNTERWEIGHT_CUDA_TRY(PlaceInputs(device, options, memory));
  COUNTERWEIGHT_CUDA_TRY(PlaceOutputs(device, memory));
  blocks_ = CutIntoBlocks(batch_, IsResident() ? options.resident_positions
                                               : options.block_positions);
  const int64_t rows = batch_.num_sequences;
  const int64_t segments = blocks_.num_segments;
  const auto bounds = static_cast<int64_t>(blocks_.row_segments.size());
  has_long_rows_ = segments > rows;
  if (has_long_rows_) {
    memory->Want(&segments_, segments);
    memory->Want(&row_segments_, bounds);
  }
  memory->Want(&offsets_, bounds);
  memory->Want(&records_, segments * segment_offsets(plan_).bytes);
  memory->Want(&bases_, segments * plan_.num_prefixes);
  memory->Want(&states_, rows);
  memory->Want(&totals_, num_totals());
  if (outputs_.sequence_reasons != nullptr) memory->Want(&reasons_, rows);
  if (!plan_.loss.active) return cudaSuccess;
  memory->Want(&rows_, rows * row_offsets(plan_).bytes);
  memory->Want(&row_factors_, rows);
  if (plan_.loss.by_batch) memory->Want(&row_tokens_, rows);
  if (!plan_.loss.selects) return cudaSuccess;
  memory->Want(&selected_, positions_);
  memory->Want(&keys_, positions_);
  return cudaSuccess;
}

std::vector<Transfer> BatchOnDevice::Uploads(const Block& block) const {
  std::vector<Transfer> uploads;
  for (int r = 0; r < kNumTensors; ++r) {
    if (inputs_[r] == nullptr) continue;
    const TensorView& tensor = batch_.tensors[r];
    const int64_t size = SizeOf(tensor.dtype);
    uploads.push_back(Copy(inputs_[r], static_cast<const char*>(tensor.data),
                           block.begin * size, block.end * size,
                           placements_[r]));
  }
  if (leaves_out_masks_) return uploads;
  for (const Transfer& transfer : UploadsOfMask(block)) {
    uploads.push_back(transfer);
  }
  return uploads;
}

std::vector<Transfer> BatchOnDevice::UploadsOfMask(const Block& block) const {
  std::vector<Transfer> uploads;
  if (mask_ != nullptr) {
    uploads.push_back(Copy(mask_, batch_.response_mask, block.begin, block.end,
                           mask_placement_));
  }
  uploads.push_back(Copy(offsets_ + block.row_segments,
                         batch_.offsets + block.first_row, 0, block.rows() + 1,
                         Placement::kPageable));
  if (has_long_rows_) {
    uploads.push_back(
        Copy(row_segments_, blocks_.row_segments.data(), block.row_segments,
             block.row_segments + block.rows() + 1, Placement::kPageable));
  }
  return uploads;
}

std::vector<Transfer> BatchOnDevice::Downloads(const Block& block, Walk walk,
                                               float* keys) const {
  std::vector<Transfer> downloads;
  const auto add = [&](const auto& output, int64_t first, int64_t last) {
    if (output.host == nullptr || first == last) return;
    downloads.push_back(
        Copy(output.host, output.allocated, first, last, output.placement));
  };
  if (walk == Walk::kSelectionKeys && block.begin < block.end) {
    downloads.push_back(
        Copy(keys, keys_, block.begin, block.end, Placement::kPageable));
  }
  if (walk == Walk::kMain) {
    if (!weights_wait_) add(weights_, block.begin, block.end);
    add(keep_mask_, block.begin, block.end);
    add(token_reasons_, block.begin, block.end);
    add(gradient_, block.begin, block.end);
    add(sequence_reasons_, block.first_row, block.last_row);
  }
  if (walk == Walk::kDivide) add(weights_, block.begin, block.end);
  return downloads;
}

std::vector<Transfer> BatchOnDevice::SetContext(const LossContext& context) {
  context_ = context;
  std::vector<Transfer> uploads;
  if (context.row_factors != nullptr) {
    uploads.push_back(Copy(row_factors_, context.row_factors, 0,
                           batch_.num_sequences, Placement::kPageable));
    context_.row_factors = row_factors_;
  }
  if (context.selected != nullptr) {
    uploads.push_back(
        Copy(selected_, context.selected, 0, positions_, Placement::kPageable));
    context_.selected = selected_;
  }
  return uploads;
}

DeviceJob BatchOnDevice::JobFor(const Block& block) const {
  DeviceJob job{};
  job.batch = batch_;
  job.batch.num_sequences = block.rows();
  job.batch.offsets = nullptr;
  job.batch.groups = nullptr;
  for (int r = 0; r < kNumTensors; ++r) {
    if (inputs_[r] != nullptr) job.batch.tensors[r].data = inputs_[r];
  }
  if (mask_ != nullptr) job.batch.response_mask = mask_;
  job.outputs.weights = Where(weights_);
  job.outputs.keep_mask = Where(keep_mask_);
  job.outputs.token_reasons = Where(token_reasons_);
  if (outputs_.sequence_reasons != nullptr) {
    job.outputs.sequence_reasons = Where(sequence_reasons_) + block.first_row;
  }
  job.outputs.gradient = Where(gradient_);
  job.num_segments = block.num_segments;
  job.segments.offsets = offsets_ + block.row_segments;
  if (has_long_rows_) {
    job.segments.segments = segments_ + block.first_segment;
    job.row_segments = row_segments_ + block.row_segments;
  }
  job.most_segments = block.most_segments;
  job.records = records_ + block.first_segment * segment_offsets(plan_).bytes;
  if (bases_ != nullptr) {
    job.bases = bases_ + block.first_segment * plan_.num_prefixes;
  }
  job.states = states_ + block.first_row;
  if (rows_ != nullptr) {
    job.rows = rows_ + block.first_row * row_offsets(plan_).bytes;
  }
  if (reasons_ != nullptr) job.reasons = reasons_ + block.first_row;
  job.shared_bytes = shared_bytes_;
  job.loss = context_;
  if (job.loss.row_factors != nullptr) job.loss.row_factors += block.first_row;
  return job;
}

cudaError_t BatchOnDevice::MakeSegments(const Block& block,
                                        cudaStream_t stream) {
  if (!has_long_rows_ || block.first_segment < segments_made_) {
    return cudaSuccess;
  }
  segments_made_ = block.first_segment + block.num_segments;
  return LaunchSegments(
      {offsets_ + block.row_segments, row_segments_ + block.row_segments,
       block.rows(), segments_ + block.first_segment},
      stream);
}

cudaError_t BatchOnDevice::LaunchStep(const Step& step, const DeviceJob& job,
                                      cudaStream_t stream) const {
  DeviceJob own = job;
  own.fired_rows_only = step.rows == StepRows::kFired;
  own.loss_only = step.loss_only;
  own.makes_rows = step.is_last;
  if (step.loss_only) own.outputs = Outputs{};
  switch (step.kind) {
    case StepKind::kInitialStates:
    case StepKind::kRowRatioLoss:
    case StepKind::kOutputsThenGradient:
      break;
    case StepKind::kStatistics:
      return LaunchStatistics(plan_, own, stream);
    case StepKind::kBoth:
      return LaunchBoth(plan_, own, stream);
    case StepKind::kSettle:
      return LaunchSettle(plan_, own, stream);
    case StepKind::kOutputs:
      return LaunchOutputs(plan_, own, stream);
    case StepKind::kSettleLoss:
      return LaunchSettleLoss(plan_, own, stream);
  }
  return cudaSuccess;
}

cudaError_t BatchOnDevice::LaunchSchedule(Purpose purpose, const DeviceJob& job,
                                          const Block& block,
                                          cudaStream_t stream) {
  const Schedule schedule = ScheduleOf(
      plan_, purpose, {.any_order = block.most_segments > 1, .fuses = true});
  DeviceJob own = job;
  own.first_pass = true;
  own.begins_totals = block.first_row == 0;
  if (own.begins_totals) {
    COUNTERWEIGHT_CUDA_TRY(cudaMemsetAsync(
        totals_, 0, static_cast<size_t>(num_totals()) * sizeof(double),
        stream));
  }
  // A loss adds to the rows' records, which are complete after its last step.
  const bool adds_loss = std::any_of(
      schedule.begin(), schedule.end(),
      [](const Step& step) { return step.kind == StepKind::kSettleLoss; });
  if (!adds_loss) own.totals = totals_;
  for (const Step& step : schedule) {
    COUNTERWEIGHT_CUDA_TRY(LaunchStep(step, own, stream));
    if (step.kind == StepKind::kSettle) own.first_pass = false;
  }
  if (!adds_loss) return cudaSuccess;
  own.totals = totals_;
  return LaunchAddRows(plan_, own, stream);
}

cudaError_t BatchOnDevice::LaunchMain(const DeviceJob& job, const Block& block,
                                      cudaStream_t stream) {
  if (job.reasons != nullptr) {
    COUNTERWEIGHT_CUDA_TRY(cudaMemsetAsync(
        job.reasons, 0, static_cast<size_t>(block.rows()) * sizeof(uint32_t),
        stream));
  }
  COUNTERWEIGHT_CUDA_TRY(LaunchSchedule(Purpose::kOutputs, job, block, stream));
  if (job.outputs.sequence_reasons == nullptr) return cudaSuccess;
  return LaunchNarrow(job.reasons, block.rows(), job.outputs.sequence_reasons,
                      stream);
}

cudaError_t BatchOnDevice::Launch(Walk walk, const Block& block, double divisor,
                                  cudaStream_t stream) {
  DeviceJob job = JobFor(block);
  if (walk != Walk::kDivide) {
    COUNTERWEIGHT_CUDA_TRY(MakeSegments(block, stream));
  }
  if (bases_ != nullptr && walk != Walk::kDivide && walk != Walk::kMask) {
    COUNTERWEIGHT_CUDA_TRY(cudaMemsetAsync(
        job.bases, 0,
        static_cast<size_t>(block.num_segments * plan_.num_prefixes) *
            sizeof(PrefixBase),
        stream));
  }
  switch (walk) {
    case Walk::kUpload:
      break;
    case Walk::kMask:
      return LaunchMask(
          {job.batch.response_mask, job.segments, job.num_segments,
           mask_tokens_ + block.first_row, first_bad_},
          stream);
    case Walk::kStatistics:
      if (row_tokens_ != nullptr)
        job.row_tokens = row_tokens_ + block.first_row;
      return LaunchSchedule(Purpose::kStatistics, job, block, stream);
    case Walk::kSelectionKeys:
      job.outputs = Outputs{};
      job.loss.selection_keys = keys_;
      return LaunchSchedule(Purpose::kSelectionKeys, job, block, stream);
    case Walk::kMain:
      return LaunchMain(job, block, stream);
    case Walk::kDivide:
      if (divisor == 1.0 || block.begin == block.end) break;
      return LaunchDivide(job.outputs.weights + block.begin,
                          block.end - block.begin, divisor, stream);
  }
  return cudaSuccess;
}

cudaError_t BatchOnDevice::Clear(cudaStream_t stream) const {
  if (!counts_mask()) return cudaSuccess;
  COUNTERWEIGHT_CUDA_TRY(cudaMemsetAsync(
      mask_tokens_, 0,
      static_cast<size_t>(batch_.num_sequences) * sizeof(*mask_tokens_),
      stream));
  return cudaMemsetAsync(first_bad_, kAllBooleanByte, sizeof(*first_bad_),
                         stream);
}

std::vector<Transfer> BatchOnDevice::Results(double* totals, double* row_tokens,
                                             uint64_t* first_bad) const {
  std::vector<Transfer> results = {
      Copy(totals, totals_, 0, num_totals(), Placement::kPageable)};
  if (row_tokens != nullptr) {
    results.push_back(Copy(row_tokens, row_tokens_, 0, batch_.num_sequences,
                           Placement::kPageable));
  }
  if (has_mask_here_) {
    results.push_back(Copy(first_bad, first_bad_, 0, 1, Placement::kPageable));
  }
  return results;
}

Transfer BatchOnDevice::MaskTokens(uint64_t* tokens) const {
  return Copy(tokens, mask_tokens_, 0, batch_.num_sequences,
              Placement::kPageable);
}

Transfer BatchOnDevice::MaskByte(int64_t position, uint8_t* value) const {
  return Copy(value, batch_.response_mask + position, 0, 1,
              Placement::kPageable);
}

}  // namespace counterweight::kernels
