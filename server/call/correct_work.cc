#include "server/call/correct_work.h"

#include <cstring>
#include <utility>

#include "server/call/payload.h"
#include "server/engine/correction_run.h"

namespace counterweight::server {

grpc::Status CorrectWork::Decode(grpc::ByteBuffer* request,
                                 Reservation* reservation) {
  grpc::Status status = ParsePayload(
      compute_.config->Get()->max_message_bytes, request, [this](auto* input) {
        return correction_.Parse(input, /*has_data=*/true);
      });
  if (!status.ok()) return status;
  status = correction_.Decode(
      {.regions = call_.is_local() ? compute_.regions : nullptr},
      [this] { return call_.StillWanted(); });
  if (!status.ok()) return status;
  status = ReserveRest(reservation);
  if (!status.ok()) return status;
  const bool examines = correction_.WantsExamination();
  const bool counts = correction_.WantsCalmWeights();
  // Where there is no room for it, the batch is corrected all the same.
  const bool has_room = (examines || counts) &&
                        reservation->Grow(ExaminationBytes(
                            correction_.decoded().layout.num_sequences,
                            correction_.decoded().layout.num_positions)) ==
                            Admission::Verdict::kAdmitted;
  examines_ = examines && has_room;
  counts_calm_weights_ = counts && has_room;
  return correction_.decoded().tensors.has_shared_mask ? CopyMask()
                                                       : grpc::Status::OK;
}

grpc::Status CorrectWork::CopyMask() {
  const Decoded& decoded = correction_.decoded();
  const uint8_t* const shared = decoded.tensors.response_mask;
  const auto size = static_cast<size_t>(decoded.layout.num_positions);
  mask_ = compute_.staging->Take(decoded.layout.num_positions);
  if (mask_ == nullptr) return call_.NoMemory();
  std::memcpy(mask_.get(), shared, size);
  const Violations violations = CheckMask(mask_.get(), decoded.tensors);
  return violations.empty() ? grpc::Status::OK
                            : call_.InvalidArgument(violations);
}

grpc::Status CorrectWork::ReserveRest(Reservation* reservation) {
  const Decoded& decoded = correction_.decoded();
  // Outputs in the message, and the bytes that it becomes.
  int64_t bytes =
      2 * OutputBytes(decoded.outputs, decoded.layout) +
      compute_.corrector->ScratchBytes(decoded.method.spec, BatchOf(decoded));
  if (decoded.tensors.has_shared_mask) bytes += decoded.layout.num_positions;
  bytes += correction_.ObjectBytes();
  // Admitted so far: the bytes as received, which are free by now, and the
  // bound of the parsed message, which the objects hold.
  bytes -= reservation->bytes();
  return bytes <= 0 ? grpc::Status::OK : call_.Refuse(reservation->Grow(bytes));
}

bool CorrectWork::TakeTurn(std::function<void()> wake) {
  if (run_ == nullptr) {
    const Decoded& decoded = correction_.decoded();
    const kernels::Outputs outputs =
        AllocateOutputs(decoded.outputs, decoded.layout, PlaceInMessage,
                        &correction_.response());
    run_ = BeginCorrection(compute_.corrector, decoded, Batch(),
                           VersionsOf(decoded), outputs,
                           [this] { return !call_.StillWanted().ok(); });
  }
  return run_->TakeTurn(std::move(wake)) != kernels::Turn::kLater;
}

kernels::Batch CorrectWork::Batch() const {
  kernels::Batch batch = BatchOf(correction_.decoded());
  if (mask_ != nullptr) {
    batch.response_mask = reinterpret_cast<const uint8_t*>(mask_.get());
  }
  return batch;
}

grpc::Status CorrectWork::Compute() {
  result_ = run_->Finish();
  run_.reset();
  grpc::Status status = correction_.Judge(result_);
  if (status.ok() && examines_) correction_.Examine(Batch());
  if (status.ok() && counts_calm_weights_) {
    correction_.CountCalmWeights(Batch());
  }
  mask_.reset();
  return status;
}

grpc::Status CorrectWork::Encode(grpc::ByteBuffer* response) {
  grpc::Status status = correction_.Encode(result_);
  if (!status.ok()) return status;
  return SerializePayload(correction_.response(), response);
}

}  // namespace counterweight::server
