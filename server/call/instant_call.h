// Calls that are answered at once, on gRPC's thread, without admission.
#ifndef COUNTERWEIGHT_SERVER_CALL_INSTANT_CALL_H_
#define COUNTERWEIGHT_SERVER_CALL_INSTANT_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "grpcpp/support/byte_buffer.h"
#include "server/call/call.h"
#include "server/call/service_context.h"
#include "server/call/unary_call.h"

namespace counterweight::server {

// Reads the request and writes the response.
using InstantAnswer = std::function<grpc::Status(
    Call* call, grpc::ByteBuffer* request, grpc::ByteBuffer* response)>;

// Answers a call with so few bytes that reading them takes less time than
// admission does; a server with a full queue answers it too.
void AnswerInstantly(const AdmitContext* admit, const ReportContext* report,
                     std::string_view rpc,
                     const std::shared_ptr<UnaryCall>& unary,
                     grpc::ByteBuffer* request, std::string request_id,
                     const InstantAnswer& answer);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_INSTANT_CALL_H_
