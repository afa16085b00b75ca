// The RPC Publish: a batch that its sender corrected, as sums.
#ifndef COUNTERWEIGHT_SERVER_CALL_PUBLISH_CALL_H_
#define COUNTERWEIGHT_SERVER_CALL_PUBLISH_CALL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "grpcpp/support/byte_buffer.h"
#include "server/call/service_context.h"
#include "server/call/unary_call.h"

namespace counterweight::server {

// Largest message, decompressed; one with everything has 5 KiB.
inline constexpr int64_t kMaxPublishBytes = int64_t{64} << 10;

// Answers at once, on gRPC's thread: reading so few bytes takes less time than
// admission does, and a server with a full queue still shows all drift.
void AnswerPublish(const AdmitContext* admit, const ReportContext* report,
                   std::string_view rpc,
                   const std::shared_ptr<UnaryCall>& unary,
                   grpc::ByteBuffer* request, std::string request_id);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_PUBLISH_CALL_H_
