#include "server/call/merge_work.h"

#include "counterweight/v1/correction_service.pb.h"
#include "server/call/message_work.h"
#include "server/engine/codec_partial.h"
#include "server/engine/request_scan.h"

namespace counterweight::server {
namespace {

using MergeWork = MessageWork<v1::MergeSumsRequest, v1::MergeSumsResponse>;

Violations Answer(const v1::MergeSumsRequest& request,
                  v1::MergeSumsResponse* response) {
  if (!request.request_id().empty() || request.has_labels()) {
    return {{request.has_labels() ? "labels" : "request_id",
             "is for libcounterweight, which publishes a step; this server "
             "adds the batches of a step itself"}};
  }
  return MergeSums(request, response);
}

}  // namespace

std::unique_ptr<Work> MakeMergeWork(Call* call) {
  // The objects of a method's block, see kMaxStructureBytes.
  constexpr int64_t kObjectBytes = 80;
  return std::make_unique<MergeWork>(
      call, MessageLimits{kMaxMergeBytes, kObjectBytes}, Answer);
}

}  // namespace counterweight::server
