// Compressed requests count as what they inflate to.
#include "grpc/compression.h"

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/payload.h"
#include "tests/server/running_server.h"

namespace counterweight::server {
namespace {

grpc::Status CorrectCompressed(RunningServer* running,
                               const v1::CorrectRequest& request,
                               grpc_compression_algorithm algorithm) {
  grpc::ClientContext context;
  context.set_compression_algorithm(algorithm);
  v1::CorrectResponse response;
  return running->Correct(request, &response, &context);
}

std::function<grpc::Status(google::protobuf::io::ZeroCopyInputStream*)> Into(
    v1::CorrectRequest* request) {
  return [request](auto* input) {
    return request->ParseFromZeroCopyStream(input)
               ? grpc::Status::OK
               : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "");
  };
}

TEST(Compression, GzipAndDeflateAreRead) {
  RunningServer running;
  v1::CorrectRequest request = SmallRequest();
  // Small messages are sent as they are, so make it worth its while.
  request.mutable_labels()->set_run(std::string(64, 'r'));
  request.mutable_labels()->set_replica(std::string(64, 'r'));
  request.set_request_id(std::string(128, 'i'));
  EXPECT_TRUE(CorrectCompressed(&running, request, GRPC_COMPRESS_GZIP).ok());
  EXPECT_TRUE(CorrectCompressed(&running, request, GRPC_COMPRESS_DEFLATE).ok());
}

TEST(Compression, ABombIsRefusedWithoutBeingInflated) {
  Config config = TestConfig();
  config.max_message_bytes = 1 << 20;
  RunningServer running(config);
  v1::CorrectRequest bomb = SmallRequest();
  constexpr size_t kInflatedBytes = size_t{256} << 20;
  bomb.mutable_tensors(0)->mutable_data()->assign(kInflatedBytes, 'x');

  const grpc::Status status =
      CorrectCompressed(&running, bomb, GRPC_COMPRESS_GZIP);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(status.error_message().find("1048576"), std::string::npos)
      << status.error_message();
  EXPECT_TRUE(running.Correct(SmallRequest()).ok()) << "still serves";
}

// Before it is parsed, as that is when it takes the memory.
TEST(Compression, ACompressedMessageIsAdmittedAsWhatItMayInflateTo) {
  Config config = TestConfig();
  config.max_bytes_in_flight = int64_t{20} << 20;
  RunningServer running(config);
  running.backend().Close();
  v1::CorrectRequest request = SmallRequest();
  request.mutable_layout()->mutable_padded()->set_length(1 << 19);
  for (v1::Tensor& tensor : *request.mutable_tensors()) {
    const size_t size = tensor.dtype() == v1::D_TYPE_U8 ? 1 : 4;
    tensor.set_data(std::string((size_t{1} << 20) * size, '\0'));
  }
  request.add_outputs(v1::TENSOR_ROLE_KEEP_MASK);
  // 9 MiB of zeros, and twice the answer of one: two do not fit.
  std::vector<std::future<grpc::Status>> calls;
  for (int i = 0; i < 2; ++i) {
    calls.push_back(std::async(std::launch::async, [&] {
      return CorrectCompressed(&running, request, GRPC_COMPRESS_GZIP);
    }));
    if (i == 0) running.backend().WaitForCalls(1);
  }
  while (running.server().requests_queued() == 0 &&
         calls[1].wait_for(std::chrono::seconds(0)) !=
             std::future_status::ready) {
    std::this_thread::yield();
  }
  EXPECT_EQ(running.server().requests_queued(), 1);
  running.backend().Open();
  for (auto& call : calls) EXPECT_TRUE(call.get().ok());
}

TEST(Compression, ALargeMessageIsRefused) {
  Config config = TestConfig();
  config.max_message_bytes = 1 << 20;
  RunningServer running(config);
  v1::CorrectRequest large = SmallRequest();
  large.mutable_tensors(0)->mutable_data()->assign((1 << 20) + 1, 'x');
  EXPECT_EQ(running.Correct(large).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(ParsePayload, TheLimitIsInclusive) {
  v1::CorrectRequest request;
  request.set_request_id(std::string(100, 'i'));
  const auto size = static_cast<int64_t>(request.ByteSizeLong());
  for (const int64_t limit : {size, size - 1}) {
    grpc::ByteBuffer payload;
    ASSERT_TRUE(SerializePayload(request, &payload).ok());
    v1::CorrectRequest parsed;
    const grpc::Status status = ParsePayload(limit, &payload, Into(&parsed));
    EXPECT_EQ(status.ok(), limit == size);
  }
}

TEST(ParsePayload, WhatDoesNotParseIsAnInvalidArgument) {
  const grpc::Slice slice(std::string("\xff\xff\xff"));
  grpc::ByteBuffer payload(&slice, 1);
  v1::CorrectRequest parsed;
  EXPECT_EQ(ParsePayload(1000, &payload, Into(&parsed)).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace counterweight::server
