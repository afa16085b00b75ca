// Calls with one message in each direction.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_UNARY_CALL_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_UNARY_CALL_H_

#include "client/cpp/response.h"
#include "client/cpp/transport/attempt.h"
#include "client/cpp/transport/prepared_request.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace counterweight::client {

// Calls any unary method of the service.
Outcome CallUnary(const Endpoint& endpoint, const char* method,
                  const grpc::ByteBuffer& request, Attempt* attempt,
                  grpc::ByteBuffer* answer);
// The same call with messages.
Outcome CallUnary(const Endpoint& endpoint, const char* method,
                  const google::protobuf::MessageLite& request,
                  Attempt* attempt, google::protobuf::MessageLite* answer);

// Calls Correct with the tensors within the message.
Outcome CorrectUnary(const Endpoint& endpoint, const PreparedRequest& request,
                     Attempt* attempt, Response* response);

// Reads the answer of Correct: sets response->message without the data of its
// tensors, and copies that data to the outputs' addresses.
Status ReadUnaryAnswer(const PreparedRequest& request,
                       const grpc::ByteBuffer& answer, Response* response);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_UNARY_CALL_H_
