#include "client/cpp/transport/unary_call.h"

#include <string>
#include <vector>

#include "client/cpp/transport/answer.h"
#include "client/cpp/transport/blocking_call.h"
#include "client/cpp/transport/message.h"
#include "client/cpp/transport/tensor_fields.h"
#include "counterweight/v1/correction_service.pb.h"
#include "proto/wire/chunk.h"

namespace counterweight::client {
namespace {

grpc::Slice Copied(const std::string& bytes) {
  return {bytes.data(), bytes.size()};
}

}  // namespace

Outcome CallUnary(const Endpoint& endpoint, const char* method,
                  const grpc::ByteBuffer& request, Attempt* attempt,
                  grpc::ByteBuffer* answer) {
  const std::string path = "/" + endpoint.service + "/" + method;
  return attempt->End(BlockingUnary(endpoint.channel, path, attempt->context(),
                                    request, answer));
}

Outcome CallUnary(const Endpoint& endpoint, const char* method,
                  const google::protobuf::MessageLite& request,
                  Attempt* attempt, google::protobuf::MessageLite* answer) {
  const grpc::Slice slice = Copied(request.SerializeAsString());
  grpc::ByteBuffer bytes;
  Outcome outcome =
      CallUnary(endpoint, method, grpc::ByteBuffer(&slice, 1), attempt, &bytes);
  if (!outcome.status.ok()) return outcome;
  if (!answer->ParseFromString(Message(bytes).reader().Rest())) {
    outcome.status = BrokenAnswer("its bytes do not parse");
  }
  return outcome;
}

Outcome CorrectUnary(const Endpoint& endpoint, const PreparedRequest& request,
                     Attempt* attempt, Response* response) {
  std::vector<grpc::Slice> slices;
  slices.push_back(Copied(request.header.SerializeAsString()));
  for (const Input& input : request.inputs) {
    slices.push_back(Copied(TensorHead(v1::CorrectRequest::kTensorsFieldNumber,
                                       input.role, input.dtype, input.bytes)));
    if (input.bytes > 0) {
      slices.push_back(attempt->Lend(input.data, input.bytes));
    }
  }
  grpc::ByteBuffer answer;
  Outcome outcome;
  {
    const grpc::ByteBuffer message(slices.data(), slices.size());
    slices.clear();
    outcome = CallUnary(endpoint, "Correct", message, attempt, &answer);
  }
  if (outcome.status.ok()) {
    outcome.status = ReadUnaryAnswer(request, answer, response);
  }
  return outcome;
}

Status ReadUnaryAnswer(const PreparedRequest& request,
                       const grpc::ByteBuffer& answer, Response* response) {
  const Message message(answer);
  std::string rest;
  std::vector<wire::WireReader> data;
  if (!TakeTensorData(message.reader(),
                      v1::CorrectResponse::kTensorsFieldNumber, &rest, &data) ||
      !response->message.ParseFromString(rest)) {
    return BrokenAnswer("its bytes do not parse");
  }
  Status status = PlaceOutputs(request, response);
  for (size_t i = 0; i < data.size() && status.ok(); ++i) {
    const OutputTensor& output = response->outputs[i];
    if (response->message.tensors(static_cast<int>(i)).has_shared_memory()) {
      continue;
    }
    if (data[i].left() != output.bytes ||
        !data[i].Copy(output.bytes, output.data)) {
      status = BrokenAnswer("tensors[" + std::to_string(i) + "] has " +
                            std::to_string(data[i].left()) + " bytes");
    }
  }
  return status;
}

}  // namespace counterweight::client
