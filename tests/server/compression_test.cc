// Compressed requests count by their decompressed size.
#include "grpc/compression.h"

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.grpc.pb.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "server/call/payload.h"
#include "tests/server/running_server.h"
#include "tests/testing/eventually.h"

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
  // gRPC sends small messages uncompressed, so this one is larger.
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
  constexpr size_t kInflatedBytes = size_t{64} << 20;
  bomb.mutable_tensors(0)->mutable_data()->assign(kInflatedBytes, 'x');

  const grpc::Status status =
      CorrectCompressed(&running, bomb, GRPC_COMPRESS_GZIP);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(status.error_message().find("1048576"), std::string::npos)
      << status.error_message();
  EXPECT_TRUE(running.Correct(SmallRequest()).ok()) << "still serves";
}

// Admission precedes parsing, which allocates the memory.
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
  ASSERT_TRUE(Eventually([&] {
    return running.server().requests_queued() > 0 ||
           calls[1].wait_for(std::chrono::seconds(0)) ==
               std::future_status::ready;
  }));
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

// A server that keeps each call's message as received, compressed or not.
class Keeper final : public grpc::CallbackGenericService {
 public:
  Keeper() {
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    builder.RegisterCallbackGenericService(this);
    // A channel within the process does not compress.
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    server_ = builder.BuildAndStart();
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new Reactor(&message_);
  }

  // Returns the received form of `request`.
  grpc::ByteBuffer Take(const v1::CorrectRequest& request) {
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    v1::CorrectResponse response;
    const auto channel = ConnectTo("127.0.0.1:" + std::to_string(port_));
    EXPECT_TRUE(v1::CorrectionService::NewStub(channel)
                    ->Correct(&context, request, &response)
                    .ok());
    return message_;
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(grpc::ByteBuffer* message) : message_(message) {
      StartRead(message_);
    }
    void OnReadDone(bool /*ok*/) override {
      StartWriteAndFinish(&empty_, {}, grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer* const message_;
    const grpc::Slice none_;
    grpc::ByteBuffer empty_{&none_, 1};
  };

  grpc::ByteBuffer message_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// One byte above the limit shows that there are more; the rest stays
// compressed.
TEST(ParsePayload, InflatesNoMoreThanTheLimit) {
  constexpr int64_t kLimit = 100'000;
  v1::CorrectRequest request;
  request.set_request_id(std::string(10 * kLimit, 'x'));
  grpc::ByteBuffer payload = Keeper().Take(request);
  ASSERT_LT(payload.Length(), kLimit);
  int64_t read = 0;
  const grpc::Status status =
      ParsePayload(kLimit, &payload, [&read](auto* input) {
        const void* data = nullptr;
        for (int size = 0; input->Next(&data, &size);) read += size;
        return grpc::Status::OK;
      });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(read, kLimit + 1);
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
