// gRPC's reflection, on and off.
#include <string>

#include "google/protobuf/empty.pb.h"
#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "server/base/blocking_call.h"
#include "tests/server/running_server.h"

namespace counterweight::server {
namespace {

// Returns the status of a reflection stream with an empty request.
grpc::Status Reflect(const Config& config) {
  RunningServer running(config);
  google::protobuf::Empty request;
  google::protobuf::BytesValue response;
  grpc::ClientContext context;
  return BlockingCall(
      running.channel(),
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      &context, request, &response);
}

TEST(Reflection, IsServedUnlessTurnedOff) {
  Config config = TestConfig();
  EXPECT_TRUE(Reflect(config).ok());
  config.reflection = false;
  EXPECT_EQ(Reflect(config).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  // Reflection does not change the metrics' address.
  config.reflection = true;
  EXPECT_TRUE(Reflect(config).ok());
}

TEST(Reflection, HealthDoesNotGoWithIt) {
  Config config = TestConfig();
  config.reflection = false;
  RunningServer running(config);
  EXPECT_EQ(running.Health(""), 1);
  EXPECT_TRUE(running.Correct(SmallRequest()).ok());
}

}  // namespace
}  // namespace counterweight::server
