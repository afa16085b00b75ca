// The server's answers to RPCs other than Correct.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/server/raw_unary.h"
#include "tests/server/running_server.h"

namespace counterweight::server {
namespace {

TEST(Serving, GetServerInfoTellsLimitsAndBackend) {
  Config config = TestConfig();
  config.max_tokens = 1234;
  RunningServer running(config);
  auto stub = v1::CorrectionService::NewStub(running.channel());
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(stub->GetServerInfo(&context, {}, &info).ok());
  EXPECT_FALSE(info.version().empty());
  EXPECT_FALSE(info.revision().empty());
  EXPECT_EQ(info.numerics_version(), kernels::kNumericsVersion);
  EXPECT_EQ(info.backend(), "cpu");
  EXPECT_EQ(info.instruction_set(), "fake");
  EXPECT_EQ(info.threads(), 2U);
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_EQ(info.limits().max_tokens(), 1234);
  EXPECT_EQ(info.limits().max_rules(), 15U);
  EXPECT_GT(info.limits().max_message_bytes(), 0U);
  ASSERT_GE(info.dialects_size(), 1);
  EXPECT_EQ(info.dialects(0), "verl");
}

// An empty message is wrong for some; a method without a row is UNIMPLEMENTED.
TEST(Serving, ServesEachRpcOfTheContract) {
  RunningServer running(TestConfig());
  const auto* const service =
      v1::CorrectRequest::descriptor()->file()->FindServiceByName(
          "CorrectionService");
  ASSERT_GE(service->method_count(), 4);
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string name(service->method(i)->name());
    const std::string path = "/" + std::string(service->full_name()) + "/";
    RawUnary call(running.channel(), path + name);
    EXPECT_TRUE(call.Send("")) << name;
    EXPECT_NE(call.Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED)
        << name;
  }
}

TEST(Serving, AsksTheBackendForUnusedMemory) {
  RunningServer running;
  EXPECT_TRUE(running.backend().WaitForReturn());
}

TEST(Serving, ListMethodsHasEveryNameOnce) {
  RunningServer running;
  auto stub = v1::CorrectionService::NewStub(running.channel());
  grpc::ClientContext context;
  v1::ListMethodsResponse methods;
  ASSERT_TRUE(stub->ListMethods(&context, {}, &methods).ok());
  std::set<std::string> names;
  for (const v1::MethodInfo& method : methods.methods()) {
    EXPECT_TRUE(names.insert(method.name()).second) << method.name();
  }
  EXPECT_EQ(names.count("token_tis"), 1U);
}

TEST(Serving, ReflectionListsTheService) {
  RunningServer running;
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto done = [&queue] {
    void* tag = nullptr;
    bool is_done = false;
    return queue.Next(&tag, &is_done) && is_done;
  };
  const auto stream =
      grpc::GenericStub(running.channel())
          .PrepareCall(
              &context,
              "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
              &queue);
  stream->StartCall(nullptr);
  ASSERT_TRUE(done());
  // ServerReflectionRequest{list_services: "*"}; the field has number 7.
  const grpc::Slice question(std::string("\x3a\x01*"));
  stream->Write(grpc::ByteBuffer(&question, 1), nullptr);
  ASSERT_TRUE(done());
  grpc::ByteBuffer answer;
  stream->Read(&answer, nullptr);
  ASSERT_TRUE(done());
  grpc::Slice bytes;
  ASSERT_TRUE(answer.DumpToSingleSlice(&bytes).ok());
  const std::string text(bytes.begin(), bytes.end());
  EXPECT_NE(text.find("counterweight.v1.CorrectionService"), std::string::npos);
  EXPECT_NE(text.find("grpc.health.v1.Health"), std::string::npos);
  stream->WritesDone(nullptr);
  ASSERT_TRUE(done());
  grpc::Status status;
  stream->Finish(&status, nullptr);
  ASSERT_TRUE(done());
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST(Serving, LogsOneLinePerRequest) {
  RunningServer running;
  v1::CorrectRequest request = SmallRequest("the-id", "the-run");
  request.mutable_labels()->set_replica("r0");
  ASSERT_TRUE(running.Correct(request).ok());
  const std::string log = running.Stop();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  for (const char* field :
       {R"("request_id":"the-id")", R"("run":"the-run")", R"("replica":"r0")",
        R"("method":"token_tis")", R"("code":"OK")", R"("peer":"tcp")",
        R"("sequences":2)", R"("violations":0)", R"("compute_seconds":)"}) {
    EXPECT_NE(log.find(field), std::string::npos) << field << " in " << log;
  }
  EXPECT_EQ(log.find("127.0.0.1"), std::string::npos);
}

}  // namespace
}  // namespace counterweight::server
