#include "server/call/instant_call.h"

#include <cstdint>
#include <utility>

namespace counterweight::server {

void AnswerInstantly(const AdmitContext* admit, const ReportContext* report,
                     std::string_view rpc,
                     const std::shared_ptr<UnaryCall>& unary,
                     grpc::ByteBuffer* request, std::string request_id,
                     const InstantAnswer& answer) {
  Call call(admit, report, rpc, unary->context(), std::move(request_id));
  grpc::ByteBuffer response;
  const grpc::Status status =
      call.Guard([&] { return answer(&call, request, &response); });
  call.record().response_bytes = static_cast<int64_t>(response.Length());
  call.EndStage("decode", &RequestRecord::decode_seconds);
  // Spans are of corrections.
  if (call.record().trace) call.record().trace->is_sampled = false;
  call.Record(status);
  unary->Finish(status, &response, nullptr);
}

}  // namespace counterweight::server
