#include "server/call/merge_work.h"

#include "server/call/payload.h"
#include "server/engine/codec_partial.h"
#include "server/engine/request_scan.h"

namespace counterweight::server {

grpc::Status MergeWork::Decode(grpc::ByteBuffer* request,
                               Reservation* reservation) {
  // The objects of a method's block, see kMaxStructureBytes.
  constexpr int64_t kObjectBytes = 80;
  const int64_t bytes = InflatedBound(kMaxMergeBytes, *request);
  if (bytes <= kMaxMergeBytes) {
    grpc::Status status = call_.Refuse(reservation->Grow(kObjectBytes * bytes));
    if (!status.ok()) return status;
  }
  return ParseMessage(kMaxMergeBytes, request, &request_);
}

grpc::Status MergeWork::Compute() {
  Violations violations;
  if (!request_.request_id().empty() || request_.has_labels()) {
    violations.push_back(
        {request_.has_labels() ? "labels" : "request_id",
         "is for libcounterweight, which publishes a step; this server adds "
         "the batches of a step itself"});
  }
  if (violations.empty()) violations = MergeSums(request_, &response_);
  return violations.empty() ? grpc::Status::OK
                            : call_.InvalidArgument(violations);
}

grpc::Status MergeWork::Encode(grpc::ByteBuffer* response) {
  return SerializePayload(response_, response);
}

}  // namespace counterweight::server
