// A unary call of a server without a stub in this program.
#ifndef COUNTERWEIGHT_SERVER_BASE_BLOCKING_CALL_H_
#define COUNTERWEIGHT_SERVER_BASE_BLOCKING_CALL_H_

#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/status.h"

namespace counterweight::server {

// Calls `method`, "/package.Service/Method", and waits for its end. An OK
// answer without a message leaves *response as it is.
template <class Request, class Response>
grpc::Status BlockingCall(const std::shared_ptr<grpc::Channel>& channel,
                          const std::string& method,
                          grpc::ClientContext* context, const Request& request,
                          Response* response) {
  grpc::CompletionQueue queue;
  grpc::TemplatedGenericStub<Request, Response> stub(channel);
  const auto call = stub.PrepareUnaryCall(context, method, request, &queue);
  grpc::Status status;
  call->StartCall();
  call->Finish(response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_BLOCKING_CALL_H_
