// CorrectStream reports errors early, completely, and once.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/running_server.h"
#include "tests/server/stream_call.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> FieldsOf(const grpc::Status& status) {
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
      << status.error_message();
  std::vector<std::string> fields;
  const auto bad_request = DetailOf<google::rpc::BadRequest>(status);
  for (const auto& violation : bad_request.field_violations()) {
    fields.push_back(violation.field());
  }
  return fields;
}

TEST(StreamErrors, AHeaderIsRefusedBeforeItsPayloadWithEveryViolation) {
  RunningServer running;
  v1::CorrectRequest request = SmallRequest();
  request.mutable_labels()->set_run("no spaces");
  request.mutable_method()->mutable_preset()->set_name("nothing");
  request.mutable_tensors(0)->set_dtype(v1::D_TYPE_U8);
  StreamCall call(running.channel());
  call.SendHeader(request);
  v1::CorrectStreamResponse frame;
  EXPECT_FALSE(call.Read(&frame)) << frame.ShortDebugString();
  EXPECT_THAT(
      FieldsOf(call.Finish()),
      ElementsAre("labels.run", "tensors[0].dtype", "method.preset.name"));
}

TEST(StreamErrors, HeadersCarryNoBytes) {
  RunningServer running;
  v1::CorrectStreamRequest frame;
  *frame.mutable_header() = SmallRequest();
  frame.mutable_header()->mutable_tensors(2)->clear_data();
  frame.mutable_header()->mutable_tensors(2)->mutable_shared_memory();
  for (const v1::TensorRole role :
       {v1::TENSOR_ROLE_WEIGHTS, v1::TENSOR_ROLE_GRADIENT}) {
    frame.mutable_header()->add_destinations()->set_role(role);
  }
  StreamCall call(running.channel());
  call.Send(frame);
  EXPECT_THAT(FieldsOf(call.Finish()),
              ElementsAre("tensors[0].data", "tensors[1].data",
                          "tensors[2].shared_memory", "destinations[0]",
                          "destinations[1]"));
}

TEST(StreamErrors, TheFirstFrameIsTheHeader) {
  RunningServer running;
  {
    StreamCall call(running.channel());
    call.SendChunk(0, 0, "x");
    EXPECT_THAT(FieldsOf(call.Finish()), ElementsAre("frame"));
  }
  {
    StreamCall call(running.channel());
    call.Send(v1::CorrectStreamRequest());
    EXPECT_THAT(FieldsOf(call.Finish()), ElementsAre("frame"));
  }
  StreamCall call(running.channel());
  call.SendHeader(SmallRequest());
  ASSERT_TRUE(call.IsAdmitted());
  call.SendHeader(SmallRequest());
  EXPECT_THAT(FieldsOf(call.Finish()), ElementsAre("frame"));
}

TEST(StreamErrors, NothingAtAllIsNoHeader) {
  RunningServer running;
  StreamCall call(running.channel());
  call.SendHeader(SmallRequest());
  ASSERT_TRUE(call.IsAdmitted());
  call.CloseWriting();
  EXPECT_THAT(FieldsOf(call.Finish()), ElementsAre("tensors[0].data"));
}

TEST(StreamErrors, ChunksContinueTheirTensors) {
  RunningServer running;
  const std::pair<v1::Chunk, std::string> cases[] = {
      {[] {
         v1::Chunk c;
         c.set_tensor(3);
         return c;
       }(),
       "chunk.tensor"},
      {[] {
         v1::Chunk c;
         c.set_offset(1);
         return c;
       }(),
       "chunk.offset"},
      {[] {
         v1::Chunk c;
         c.set_data(std::string(25, 'x'));
         return c;
       }(),
       "chunk.data"},
      {[] {
         v1::Chunk c;
         c.set_tensor(2);
         c.set_data("\2");
         return c;
       }(),
       "tensors[2].data"},
  };
  for (const auto& [chunk, field] : cases) {
    StreamCall call(running.channel());
    call.SendHeader(SmallRequest());
    ASSERT_TRUE(call.IsAdmitted());
    call.SendChunk(chunk.tensor(), chunk.offset(), chunk.data());
    EXPECT_THAT(FieldsOf(call.Finish()), ElementsAre(field));
  }
  running.server().WaitUntilIdle(std::chrono::minutes(1));
  EXPECT_EQ(running.server().bytes_in_flight(), 0);
}

TEST(StreamErrors, AStreamThatEndsEarlyNamesItsTensor) {
  RunningServer running;
  StreamCall call(running.channel());
  const v1::CorrectRequest request = SmallRequest();
  call.SendHeader(request);
  ASSERT_TRUE(call.IsAdmitted());
  call.SendChunk(0, 0, request.tensors(0).data());
  call.SendChunk(1, 0, request.tensors(1).data().substr(0, 9));
  call.CloseWriting();
  const grpc::Status status = call.Finish();
  EXPECT_THAT(FieldsOf(status), ElementsAre("tensors[1].data"));
  EXPECT_THAT(status.error_message(), HasSubstr("9 of 24 bytes"));
}

TEST(StreamErrors, WhatIsRefusedWhileComputingSendsNoResult) {
  RunningServer running;
  kernels::CorrectResult refused;
  refused.status = kernels::CorrectStatus::kNonFinite;
  refused.non_finite = {kernels::InputRole::kOld, 1, 2, true};
  running.backend().SetResult(refused);
  const v1::CorrectRequest request = SmallRequest();
  StreamCall call(running.channel());
  call.SendHeader(request);
  ASSERT_TRUE(call.IsAdmitted());
  call.SendTensors(request);
  v1::CorrectStreamResponse frame;
  EXPECT_FALSE(call.Read(&frame));
  EXPECT_THAT(FieldsOf(call.Finish()), ElementsAre("tensors[OLD_LOG_PROBS]"));
}

TEST(StreamErrors, MoreThanTheBudgetIsNotWorthARetry) {
  Config config = TestConfig();
  config.max_message_bytes = 1024;
  config.max_bytes_in_flight = 4096;
  RunningServer running(config);
  v1::CorrectRequest request = SmallRequest();
  request.mutable_layout()->mutable_padded()->set_length(1000);
  StreamCall call(running.channel());
  call.SendHeader(request);
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("4096 bytes"));
  EXPECT_THAT(status.error_details(), IsEmpty());
}

// 32 MiB of zeros, 32 KB on the wire.
TEST(StreamErrors, CompressedFramesAreBoundedByWhatTheyInflateTo) {
  RunningServer running;
  v1::CorrectRequest request = SmallRequest();
  request.mutable_layout()->mutable_padded()->set_length(8 << 20);
  StreamCall call(running.channel());
  call.context().set_compression_algorithm(GRPC_COMPRESS_GZIP);
  call.SendHeader(request);
  ASSERT_TRUE(call.IsAdmitted());
  call.SendChunk(0, 0, std::string(32 << 20, '\0'));
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(StreamErrors, ChunksOfSixteenMebibytesAreTheLargest) {
  RunningServer running;
  v1::CorrectRequest request = SmallRequest();
  request.mutable_layout()->mutable_padded()->set_length(8 << 20);
  for (const int64_t extra : {0, 1024}) {
    StreamCall call(running.channel());
    call.SendHeader(request);
    ASSERT_TRUE(call.IsAdmitted());
    call.SendChunk(0, 0, std::string((16 << 20) + extra, '\0'));
    call.CloseWriting();
    EXPECT_EQ(call.Finish().error_code(),
              extra == 0 ? grpc::StatusCode::INVALID_ARGUMENT  // ended early
                         : grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
}

}  // namespace
}  // namespace counterweight::server
