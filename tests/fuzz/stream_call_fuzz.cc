// Whole calls of CorrectStream: arbitrary clients against the server in this
// process, and valid ones compared with Correct.
//
// Input: a request, then the messages step by step, and the end.
//
// Checks: every call ends; invalid streams end with INVALID_ARGUMENT.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "counterweight/v1/correction_service.grpc.pb.h"
#include "server/engine/message_bytes.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/stream_client.h"
#include "tests/fuzz/stream_request.h"
#include "tests/fuzz/stream_server.h"

namespace counterweight::fuzz {
namespace {

// Expected outcome of the frames so far.
enum class Outcome : uint8_t {
  kUnfinished,  // more messages are missing
  kWhole,
  kRefused,
  kUnknown,  // bytes at random are among them
};

// Frames of one stream. Frames after a refused frame or the last byte have no
// effect, and are sometimes sent.
class Upload {
 public:
  explicit Upload(const v1::CorrectRequest& request)
      : request_(request),
        sent_(static_cast<size_t>(request.tensors_size()), 0) {}

  Outcome outcome() const { return outcome_; }
  std::vector<std::string> TakeMessages() { return std::move(messages_); }

  void SendHeader() {
    messages_.push_back(HeaderOf(request_).SerializeAsString());
    if (outcome_ != Outcome::kUnfinished) return;
    if (has_header_) {
      outcome_ = Outcome::kRefused;
    } else {
      has_header_ = true;
      UpdateWhole();
    }
  }

  void SendBytes(std::string bytes) {
    messages_.push_back(std::move(bytes));
    if (outcome_ == Outcome::kUnfinished) outcome_ = Outcome::kUnknown;
  }

  // The next bytes of a tensor, at most `size`.
  void SendNext(size_t tensor, size_t size) {
    const std::string& data = DataOf(tensor);
    size = std::min(size, data.size() - sent_[tensor]);
    SendChunk(tensor, sent_[tensor], data.substr(sent_[tensor], size));
    if (outcome_ != Outcome::kUnfinished) return;
    sent_[tensor] += size;
    UpdateWhole();
  }

  // Sends a chunk that is invalid at any time.
  void SendWrong(Input* input) {
    const size_t tensor = input->TakeBelow(sent_.size());
    switch (input->TakeBelow(4)) {
      case 0:
        SendChunk(sent_.size() + input->TakeByte(), 0, "x");
        break;
      case 1:
        SendChunk(tensor, sent_[tensor] + 1 + input->TakeByte(), "");
        break;
      case 2:
        SendChunk(tensor, std::numeric_limits<uint64_t>::max(), "xy");
        break;
      default:
        SendChunk(tensor, sent_[tensor],
                  std::string(DataOf(tensor).size() + 1, '\1'));
    }
    if (outcome_ == Outcome::kUnfinished) outcome_ = Outcome::kRefused;
  }

  void SendRest(size_t chunk_size) {
    for (size_t i = 0; i < sent_.size(); ++i) {
      while (sent_[i] < DataOf(i).size() && outcome_ == Outcome::kUnfinished) {
        SendNext(i, chunk_size);
      }
    }
  }

  size_t num_tensors() const { return sent_.size(); }

 private:
  const std::string& DataOf(size_t tensor) const {
    return request_.tensors(static_cast<int>(tensor)).data();
  }

  void SendChunk(size_t tensor, uint64_t offset, const std::string& data) {
    v1::CorrectStreamRequest message;
    v1::Chunk* const chunk = message.mutable_chunk();
    chunk->set_tensor(static_cast<uint32_t>(tensor));
    chunk->set_offset(offset);
    chunk->set_data(data);
    messages_.push_back(message.SerializeAsString());
    // The header is first.
    if (!has_header_ && outcome_ == Outcome::kUnfinished) {
      outcome_ = Outcome::kRefused;
    }
  }

  void UpdateWhole() {
    for (size_t i = 0; i < sent_.size(); ++i) {
      if (sent_[i] < DataOf(i).size()) return;
    }
    outcome_ = Outcome::kWhole;
  }

  const v1::CorrectRequest& request_;
  std::vector<size_t> sent_;  // bytes of each tensor
  std::vector<std::string> messages_;
  bool has_header_ = false;
  Outcome outcome_ = Outcome::kUnfinished;
};

void TakeStep(Input* input, Upload* upload) {
  const uint8_t choice = input->TakeByte();
  switch (choice % 16) {
    case 0:
      return upload->SendBytes(input->TakeBytes(input->TakeByte()));
    case 1:
      return upload->SendHeader();
    case 2:
      return upload->SendWrong(input);
    case 3:
      return upload->SendRest(1 + input->TakeBelow(256));
    default:
      return upload->SendNext(choice / 16 % upload->num_tensors(),
                              input->TakeByte());
  }
}

StreamPlan TakePlan(Input* input, Upload* upload) {
  constexpr size_t kMaxSteps = 48;
  constexpr size_t kMaxRead = 6;
  StreamPlan plan;
  const uint8_t end = input->TakeByte();
  if (end % 16 == 3) plan.cancel_at_read = 1 + input->TakeBelow(kMaxRead);
  if (end % 32 != 4) upload->SendHeader();
  for (size_t i = 0; i < kMaxSteps && input->remaining() > 0; ++i) {
    TakeStep(input, upload);
  }
  if (end % 16 == 5) {
    plan.end = StreamPlan::End::kCancel;
  } else if (end % 2 == 0 && (upload->outcome() == Outcome::kWhole ||
                              upload->outcome() == Outcome::kRefused)) {
    plan.end = StreamPlan::End::kStayOpen;
  }
  plan.messages = upload->TakeMessages();
  return plan;
}

// The result with its chunks put back; expects the order of the protocol.
v1::CorrectResponse Assemble(const StreamAnswer& answer) {
  const auto& messages = answer.messages;
  Expect(messages.size() >= 3 && messages.front().has_admission() &&
             messages[1].has_result() && messages.back().has_summary(),
         "an answer is admission, result, chunks, summary");
  v1::CorrectResponse response = messages[1].result();
  for (size_t i = 2; i + 1 < messages.size(); ++i) {
    Expect(messages[i].has_chunk(), "chunks come after the result");
    const v1::Chunk& chunk = messages[i].chunk();
    Expect(static_cast<int64_t>(chunk.tensor()) < response.tensors_size(),
           "a chunk is of a tensor of the result");
    std::string* const data =
        response.mutable_tensors(static_cast<int>(chunk.tensor()))
            ->mutable_data();
    Expect(chunk.offset() == data->size(), "chunks ascend without gaps");
    data->append(chunk.data());
  }
  return response;
}

void CheckWhole(StreamServer* server, const v1::CorrectRequest& request,
                const StreamAnswer& answer) {
  grpc::ClientContext context;
  v1::CorrectResponse expected;
  const grpc::Status status = v1::CorrectionService::NewStub(server->channel())
                                  ->Correct(&context, request, &expected);
  Expect(answer.status.error_code() == status.error_code() &&
             answer.status.error_message() == status.error_message(),
         "a stream ends as Correct does",
         answer.status.error_message() + " / " + status.error_message());
  if (!status.ok()) return;
  v1::CorrectResponse response = Assemble(answer);
  response.clear_timing();
  expected.clear_timing();
  Expect(server::MessageBytes(response) == server::MessageBytes(expected),
         "a stream answers as Correct does",
         response.ShortDebugString() + " / " + expected.ShortDebugString());
}

void CheckCall(Input input) {
  static StreamServer& server = *new StreamServer;
  const v1::CorrectRequest request = TakeRequest(&input);
  Upload upload(request);
  const StreamPlan plan = TakePlan(&input, &upload);
  const StreamAnswer answer = RunStream(server.channel(), plan);
  server.ExpectIdle();
  const bool is_cancelled =
      plan.cancel_at_read > 0 || plan.end == StreamPlan::End::kCancel;
  if (is_cancelled || upload.outcome() == Outcome::kUnknown) return;
  if (upload.outcome() == Outcome::kWhole) {
    return CheckWhole(&server, request, answer);
  }
  Expect(answer.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT &&
             !answer.status.error_message().empty(),
         "what is wrong or incomplete is INVALID_ARGUMENT",
         answer.status.error_message());
  Expect(answer.messages.empty() || (answer.messages.size() == 1 &&
                                     answer.messages[0].has_admission()),
         "nothing but the admission goes down before all is known to be valid");
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::CheckCall(counterweight::fuzz::Input(data, size));
  return 0;
}
