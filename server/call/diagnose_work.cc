#include "server/call/diagnose_work.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "server/call/correction.h"
#include "server/call/payload.h"

namespace counterweight::server {

grpc::Status DiagnoseWork::Decode(grpc::ByteBuffer* request,
                                  Reservation* reservation) {
  const std::shared_ptr<const Config> config = compute_.config->Get();
  grpc::Status status =
      ParsePayload(config->max_message_bytes, request, [&](auto* input) {
        return ParseScanned(config->max_sequences, /*has_data=*/true, input,
                            &call_, &request_);
      });
  if (!status.ok()) return status;
  RequestRecord& record = call_.record();
  if (!request_.request_id().empty()) record.request_id = request_.request_id();
  record.run = request_.labels().run();
  record.replica = request_.labels().replica();
  // Audited rows are shown with the run.
  if (request_.has_audit()) status = call_.MayWrite(record.run);
  if (!status.ok()) return status;
  Result<Patient> patient =
      DecodePatient(request_, {config->max_tokens, config->max_sequences},
                    {.regions = call_.is_local() ? compute_.regions : nullptr});
  if (!patient.ok()) return call_.InvalidArgument(patient.violations);
  patient_ = std::move(patient.value);
  record.sequences = patient_.layout.num_sequences;
  const int64_t bytes = static_cast<int64_t>(request_.SpaceUsedLong()) +
                        ExaminationBytes(patient_) - reservation->bytes();
  return bytes <= 0 ? grpc::Status::OK : call_.Refuse(reservation->Grow(bytes));
}

grpc::Status DiagnoseWork::Compute() {
  const Violations violations = Diagnose(
      patient_, [this] { return !call_.StillWanted().ok(); }, &response_);
  if (!violations.empty()) return call_.InvalidArgument(violations);
  if (grpc::Status status = call_.StillWanted(); !status.ok()) return status;
  call_.record().tokens = response_.tokens();
  return grpc::Status::OK;
}

void DiagnoseWork::Publish() {
  const v1::AuditSummary& audit = response_.audit();
  if (audit.sums_size() == 0) return;
  report_.drift->CountAudited(
      request_.labels().run(), call_.queue_client().peer, request_.request_id(),
      {audit.sums().data(), static_cast<size_t>(audit.sums_size())});
}

grpc::Status DiagnoseWork::Encode(grpc::ByteBuffer* response) {
  response_.set_request_id(call_.record().request_id);
  return SerializePayload(response_, response);
}

}  // namespace counterweight::server
