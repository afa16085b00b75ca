// The work of an RPC with a small request that holds no batch.
#ifndef COUNTERWEIGHT_SERVER_CALL_MESSAGE_WORK_H_
#define COUNTERWEIGHT_SERVER_CALL_MESSAGE_WORK_H_

#include <cstdint>
#include <functional>

#include "server/call/compute_call.h"
#include "server/call/payload.h"
#include "server/engine/violation.h"

namespace counterweight::server {

struct MessageLimits {
  // Largest message, decompressed.
  int64_t bytes;
  // Memory of the parsed request and of its answer, for each byte received.
  int64_t memory_of_byte;
};

template <class Request, class Response>
class MessageWork final : public Work {
 public:
  using Answer = Violations (*)(const Request& request, Response* response);

  // `call` must outlive this.
  MessageWork(Call* call, MessageLimits limits, Answer answer)
      : call_(*call), limits_(limits), answer_(answer) {}

  grpc::Status Decode(grpc::ByteBuffer* request,
                      Reservation* reservation) override {
    const int64_t bytes = InflatedBound(limits_.bytes, *request);
    if (bytes <= limits_.bytes) {
      grpc::Status status =
          call_.Refuse(reservation->Grow(limits_.memory_of_byte * bytes));
      if (!status.ok()) return status;
    }
    grpc::Status status = ParseMessage(limits_.bytes, request, &request_);
    if (!request_.request_id().empty()) {
      call_.record().request_id = request_.request_id();
    }
    return status;
  }
  bool TakeTurn(std::function<void()> /*wake*/) override { return true; }
  grpc::Status Compute() override {
    const Violations violations = answer_(request_, &response_);
    return violations.empty() ? grpc::Status::OK
                              : call_.InvalidArgument(violations);
  }
  grpc::Status Encode(grpc::ByteBuffer* response) override {
    return SerializePayload(response_, response);
  }
  void Publish() override {}

 private:
  Call& call_;
  const MessageLimits limits_;
  const Answer answer_;
  Request request_;
  Response response_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_MESSAGE_WORK_H_
