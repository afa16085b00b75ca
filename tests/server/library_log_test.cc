#include "server/log/library_log.h"

#include <memory>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "spdlog/sinks/ringbuffer_sink.h"
#if __has_include("absl/log/absl_log.h")
#include "absl/log/absl_log.h"
#endif

namespace counterweight::server {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Captures all logs of libraries from construction on.
class LibraryLog {
 public:
  LibraryLog() {
    auto logger = std::make_shared<spdlog::logger>("test", sink_);
    logger->set_pattern("%v");
    logger->set_level(spdlog::level::debug);
    // Never deleted: gRPC logs until the process ends. Reachable, so that it is
    // not a leak.
    static auto* const logs = new std::vector<std::unique_ptr<RequestLog>>;
    logs->push_back(std::make_unique<RequestLog>(logger));
    LogLibrariesTo(logs->back().get());
  }

  std::vector<std::string> Lines() { return sink_->last_formatted(); }

 private:
  static constexpr size_t kMaxLines = 1000;

  const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> sink_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(kMaxLines);
};

// Null: no server can listen there.
std::unique_ptr<grpc::Server> ListenInNoFolder() {
  v1::CorrectionService::Service service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  builder.AddListeningPort("unix:/no/such/folder/socket",
                           grpc::InsecureServerCredentials());
  return builder.BuildAndStart();
}

TEST(LibraryLog, ErrorsOfGrpcAreWarnings) {
  LibraryLog log;
  testing::internal::CaptureStderr();
  EXPECT_EQ(ListenInNoFolder(), nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(log.Lines(),
              Contains(AllOf(HasSubstr(R"("level":"warning","event":"grpc")"),
                             HasSubstr("/no/such/folder/socket"))));
  EXPECT_THAT(log.Lines(), Each(Not(HasSubstr(R"("level":"error")"))));
}

TEST(LibraryLog, WhatProtobufSaysOfARequestIsForDebugging) {
  LibraryLog log;
  testing::internal::CaptureStderr();
  // request_id with one byte that is not UTF-8.
  EXPECT_FALSE(v1::CorrectRequest().ParseFromString("\x0a\x01\xff"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(
      log.Lines(),
      ElementsAre(AllOf(HasSubstr(R"("level":"debug","event":"protobuf")"),
                        HasSubstr("invalid UTF-8"))));
}

#if __has_include("absl/log/absl_log.h")
TEST(LibraryLog, WarningsAndInformationAreForDebugging) {
  LibraryLog log;
  testing::internal::CaptureStderr();
  ABSL_LOG(INFO) << "one";
  ABSL_LOG(WARNING) << "two";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  constexpr const char* kBegin = R"("level":"debug","event":"grpc","what":)";
  EXPECT_THAT(log.Lines(),
              ElementsAre(AllOf(HasSubstr(kBegin), HasSubstr(R"("one"})")),
                          AllOf(HasSubstr(kBegin), HasSubstr(R"("two"})"))));
}

TEST(LibraryLogDeathTest, AnAbortIsOneErrorAndNothingElse) {
  EXPECT_DEATH(
      {
        LogLibrariesTo(new RequestLog(MakeStderrLogger("error")));
        ABSL_LOG(FATAL) << "the end";
      },
      AllOf(StartsWith(R"({"time":)"),
            EndsWith(R"("level":"error","event":"abort","what":"the end"})"
                     "\n"),
            Not(HasSubstr("\n{"))));
}
#endif

}  // namespace
}  // namespace counterweight::server
