#include "server/call/payload.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/version_info.h"
#include "gtest/gtest.h"
#include "tests/server/raw_unary.h"
#include "tests/server/running_server.h"

namespace counterweight::server {
namespace {

constexpr int64_t kMessageBytes = int64_t{256} << 10;

// Frees each message as soon as it has arrived, and never answers.
class FreeingService final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new Reactor(&freed_);
  }

  int freed() const { return freed_; }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(std::atomic<int>* freed) : freed_(*freed) {
      StartRead(&message_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return;
      PayloadPieces pieces;
      EXPECT_TRUE(pieces.Open(kMessageBytes, &message_).ok());
      pieces.Clear();
      ++freed_;
      StartRead(&message_);
    }
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }

   private:
    std::atomic<int>& freed_;
    grpc::ByteBuffer message_;
  };

  std::atomic<int> freed_ = 0;
};

TEST(PayloadPieces, ClearFreesThePayload) {
  bool is_freed = false;
  std::string bytes(5000, 'x');
  grpc::ByteBuffer payload;
  {
    const grpc::Slice slice(
        bytes.data(), bytes.size(),
        [](void* freed) { *static_cast<bool*>(freed) = true; }, &is_freed);
    payload = grpc::ByteBuffer(&slice, 1);
  }
  PayloadPieces pieces;
  ASSERT_TRUE(pieces.Open(kMessageBytes, &payload).ok());
  EXPECT_FALSE(is_freed);
  pieces.Clear();
  EXPECT_TRUE(is_freed);
}

// gRPC 1.51 closes connections to find memory. When it has none left to close,
// freed memory makes it look again.
TEST(PayloadPieces, AreFreedWhileGrpcLooksForMemory) {
#if GRPC_CPP_VERSION_MAJOR > 1 || GRPC_CPP_VERSION_MINOR >= 66
  GTEST_SKIP() << "this gRPC closes no connection to find memory";
#endif
  FreeingService service;
  grpc::ResourceQuota quota;
  quota.Resize(kMessageBytes);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.SetResourceQuota(quota);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  int closed = 0;
  // A server may free each message before the next one arrives.
  for (int round = 0; round < 20 && closed == 0; ++round) {
    std::vector<std::unique_ptr<RawUnary>> calls;
    for (int i = 0; i < 64; ++i) {
      calls.push_back(std::make_unique<RawUnary>(
          ConnectTo("127.0.0.1:" + std::to_string(port))));
      calls.back()->Send(std::string(kMessageBytes, 'x'));
    }
    for (const auto& call : calls) {
      call->context().TryCancel();
      closed += static_cast<int>(call->Finish().error_code() !=
                                 grpc::StatusCode::CANCELLED);
    }
  }
  EXPECT_GT(service.freed(), 0) << "no message came";
  EXPECT_GT(closed, 0) << "there was memory for all";
  server->Shutdown();
}

}  // namespace
}  // namespace counterweight::server
