// A server that breaks the stream's contract ends the call without further
// effects.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "tests/client_cpp/fake_service.h"
#include "tests/client_cpp/test_batch.h"

namespace counterweight::client {
namespace {

using Frames = std::vector<v1::CorrectStreamResponse>;

v1::CorrectStreamResponse Admission() {
  v1::CorrectStreamResponse frame;
  frame.mutable_admission()->set_chunk_bytes(16);
  return frame;
}

// The keep mask of ten positions.
v1::CorrectStreamResponse Result() {
  v1::CorrectStreamResponse frame;
  v1::Tensor* const tensor = frame.mutable_result()->add_tensors();
  tensor->set_role(v1::TENSOR_ROLE_KEEP_MASK);
  tensor->set_dtype(v1::D_TYPE_U8);
  return frame;
}

v1::CorrectStreamResponse Chunk(uint32_t tensor, uint64_t offset, size_t size) {
  v1::CorrectStreamResponse frame;
  frame.mutable_chunk()->set_tensor(tensor);
  frame.mutable_chunk()->set_offset(offset);
  frame.mutable_chunk()->set_data(std::string(size, '\1'));
  return frame;
}

v1::CorrectStreamResponse Summary() {
  v1::CorrectStreamResponse frame;
  frame.mutable_summary()->mutable_timing()->set_compute_seconds(0.25);
  return frame;
}

class BrokenStream : public testing::Test {
 protected:
  // Sends a batch of ten positions to a server with these answers.
  Status Answer(const Frames& frames, grpc::Status end = grpc::Status::OK) {
    // Captures by value: a client that gives up is destroyed before the
    // handler.
    service_.on_stream = [this, frames, end](grpc::ServerContext*,
                                             FakeService::Stream* stream) {
      v1::CorrectStreamRequest request;
      stream->Read(&request);
      stream->Write(frames[0]);
      while (stream->Read(&request)) {
        const size_t size = request.chunk().data().size();
        received_ += size;
        if (size > largest_) largest_ = size;
      }
      for (size_t i = 1; i < frames.size(); ++i) stream->Write(frames[i]);
      return end;
    };
    const TestBatch batch(2, 5);
    Options options;
    options.transport = Transport::kStream;
    Client client(service_.target(), options);
    return client.Correct(batch.Weights(), &response_);
  }

  void ExpectBroken(const Frames& frames, const std::string& what) {
    const Status status = Answer(frames);
    EXPECT_EQ(status.code, StatusCode::kInternal);
    EXPECT_NE(status.message.find(what), std::string::npos) << status.message;
  }

  std::atomic<size_t> received_ = 0;
  std::atomic<size_t> largest_ = 0;
  Response response_;
  FakeService service_;
};

TEST_F(BrokenStream, IsNotOneThatKeepsTheContract) {
  const Status status = Answer(
      {Admission(), Result(), Chunk(0, 0, 4), Chunk(0, 4, 6), Summary()});
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(Bytes(response_, v1::TENSOR_ROLE_KEEP_MASK), std::string(10, '\1'));
  EXPECT_EQ(response_.message.timing().compute_seconds(), 0.25);
  EXPECT_EQ(response_.transport, Transport::kStream);
  EXPECT_EQ(received_, 90U);
  // The admission named the size.
  EXPECT_EQ(largest_, 16U);
}

TEST_F(BrokenStream, WithoutAdmission) {
  ExpectBroken({Result(), Summary()}, "the admission was to come");
}

TEST_F(BrokenStream, WithoutResult) {
  ExpectBroken({Admission(), Chunk(0, 0, 10), Summary()},
               "the result was to come");
}

TEST_F(BrokenStream, WithChunksThatDoNotContinue) {
  for (const auto& wrong : {Chunk(0, 5, 5), Chunk(0, 3, 6), Chunk(1, 4, 6),
                            Chunk(0, 4, 7), Chunk(0, 4, 0)}) {
    ExpectBroken({Admission(), Result(), Chunk(0, 0, 4), wrong, Summary()},
                 "a chunk does not continue its tensor");
  }
}

TEST_F(BrokenStream, ThatEndsEarly) {
  ExpectBroken({Admission()}, "ends early");
  ExpectBroken({Admission(), Result(), Chunk(0, 0, 4)}, "ends early");
  ExpectBroken({Admission(), Result(), Chunk(0, 0, 10)}, "ends early");
  ExpectBroken({Admission(), Result(), Chunk(0, 0, 4), Summary()},
               "a chunk was to come");
}

TEST_F(BrokenStream, ThatGoesOnAfterTheSummary) {
  ExpectBroken({Admission(), Result(), Chunk(0, 0, 10), Summary(), Summary()},
               "goes on after the summary");
}

TEST_F(BrokenStream, WithOutputsThatAreNone) {
  v1::CorrectStreamResponse result = Result();
  result.mutable_result()->mutable_tensors(0)->set_role(
      v1::TENSOR_ROLE_OLD_LOG_PROBS);
  ExpectBroken({Admission(), result}, "not what was asked for");
  result = Result();
  *result.mutable_result()->add_tensors() = result.result().tensors(0);
  ExpectBroken({Admission(), result}, "not what was asked for");
}

TEST_F(BrokenStream, AnErrorAfterTheAdmissionIsNotTriedAgain) {
  const Status status =
      Answer({Admission()}, {grpc::StatusCode::UNAVAILABLE, "going down"});
  EXPECT_EQ(status.code, StatusCode::kUnavailable);
  EXPECT_EQ(status.message, "going down");
  EXPECT_EQ(service_.calls(), 1);
}

}  // namespace
}  // namespace counterweight::client
