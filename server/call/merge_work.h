// The work of MergeSums.
#ifndef COUNTERWEIGHT_SERVER_CALL_MERGE_WORK_H_
#define COUNTERWEIGHT_SERVER_CALL_MERGE_WORK_H_

#include <cstdint>
#include <functional>

#include "counterweight/v1/correction_service.pb.h"
#include "server/call/compute_call.h"

namespace counterweight::server {

// Largest message, decompressed: 32 parts of 8 KiB.
inline constexpr int64_t kMaxMergeBytes = int64_t{256} << 10;

class MergeWork final : public Work {
 public:
  // Must outlive this.
  explicit MergeWork(Call* call) : call_(*call) {}

  grpc::Status Decode(grpc::ByteBuffer* request,
                      Reservation* reservation) override;
  bool TakeTurn(std::function<void()> /*wake*/) override { return true; }
  grpc::Status Compute() override;
  grpc::Status Encode(grpc::ByteBuffer* response) override;
  void Publish() override {}

 private:
  Call& call_;
  v1::MergeSumsRequest request_;
  v1::MergeSumsResponse response_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_MERGE_WORK_H_
