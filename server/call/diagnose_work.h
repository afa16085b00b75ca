// The work of Diagnose.
#ifndef COUNTERWEIGHT_SERVER_CALL_DIAGNOSE_WORK_H_
#define COUNTERWEIGHT_SERVER_CALL_DIAGNOSE_WORK_H_

#include <functional>

#include "counterweight/v1/correction_service.pb.h"
#include "server/call/compute_call.h"
#include "server/engine/codec_diagnosis.h"

namespace counterweight::server {

class DiagnoseWork final : public Work {
 public:
  // All must outlive this.
  DiagnoseWork(const ComputeContext* compute, const ReportContext* report,
               Call* call)
      : compute_(*compute), report_(*report), call_(*call) {}

  grpc::Status Decode(grpc::ByteBuffer* request,
                      Reservation* reservation) override;
  // An examination is bounded, and shares nothing but its thread.
  bool TakeTurn(std::function<void()> /*wake*/) override { return true; }
  grpc::Status Compute() override;
  grpc::Status Encode(grpc::ByteBuffer* response) override;
  // Counts audited rows.
  void Publish() override;

 private:
  const ComputeContext& compute_;
  const ReportContext& report_;
  Call& call_;
  v1::CorrectRequest request_;  // the fields of a DiagnoseRequest
  Patient patient_;
  v1::DiagnoseResponse response_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_DIAGNOSE_WORK_H_
