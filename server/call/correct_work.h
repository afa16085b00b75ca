// The work of Correct.
#ifndef COUNTERWEIGHT_SERVER_CALL_CORRECT_WORK_H_
#define COUNTERWEIGHT_SERVER_CALL_CORRECT_WORK_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "server/call/compute_call.h"
#include "server/call/correction.h"

namespace counterweight::server {

class CorrectWork final : public Work {
 public:
  // All must outlive this.
  CorrectWork(const ComputeContext* compute, const ReportContext* report,
              Call* call)
      : compute_(*compute), call_(*call), correction_(compute, report, call) {}

  grpc::Status Decode(grpc::ByteBuffer* request,
                      Reservation* reservation) override;
  bool TakeTurn(std::function<void()> wake) override;
  grpc::Status Compute() override;
  grpc::Status Encode(grpc::ByteBuffer* response) override;
  void Publish() override { correction_.Publish(result_); }
  bool Corrects() const override { return true; }

 private:
  // Reserves what is known only from the decoded request.
  grpc::Status ReserveRest(Reservation* reservation);
  kernels::Batch Batch() const;
  // Copies a mask in the host's shared memory, and checks the copy.
  grpc::Status CopyMask();

  const ComputeContext& compute_;
  Call& call_;
  Correction correction_;
  std::shared_ptr<std::byte> mask_;  // a copy of a shared one
  bool counts_calm_weights_ = false;
  bool examines_ = false;
  std::unique_ptr<kernels::CorrectRun> run_;
  kernels::CorrectResult result_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_CORRECT_WORK_H_
