// The view of clients, probes and Prometheus on a device that fails, is lost or
// is full.
#include <chrono>
#include <future>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/running_server.h"
#include "tests/server/stream_call.h"

namespace counterweight::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kServing = 1;
constexpr int kNotServing = 2;

Config WithMetrics() {
  Config config = TestConfig();
  config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
  return config;
}

kernels::CorrectResult Failure() {
  kernels::CorrectResult result;
  result.status = kernels::CorrectStatus::kDeviceError;
  result.device_error = "an illegal memory access at /dev/nvidia0";
  result.device = 0;
  return result;
}

kernels::CorrectResult Loss() {
  kernels::CorrectResult result = Failure();
  result.status = kernels::CorrectStatus::kDeviceLost;
  return result;
}

kernels::CorrectResult Full() {
  kernels::CorrectResult result;
  result.status = kernels::CorrectStatus::kDeviceFull;
  result.device = 0;
  return result;
}

// Both RPCs.
class DeviceErrors : public testing::TestWithParam<bool> {
 protected:
  explicit DeviceErrors(const Config& config = TestConfig())
      : running_(config) {}

  grpc::Status Correct(const std::string& request_id) {
    const v1::CorrectRequest request = SmallRequest(request_id);
    v1::CorrectResponse response;
    return GetParam() ? Stream(running_.channel(), request, 0, &response)
                      : running_.Correct(request, &response);
  }

  RunningServer running_;
};

class DeviceMetrics : public DeviceErrors {
 protected:
  DeviceMetrics() : DeviceErrors(WithMetrics()) {}
};

std::string NameOfRpc(const testing::TestParamInfo<bool>& is_stream) {
  return is_stream.param ? "CorrectStream" : "Correct";
}

INSTANTIATE_TEST_SUITE_P(Rpcs, DeviceErrors, testing::Bool(), NameOfRpc);
INSTANTIATE_TEST_SUITE_P(Rpcs, DeviceMetrics, testing::Bool(), NameOfRpc);

TEST_P(DeviceErrors, AFailureIsInternalAndTellsTheLogAlone) {
  running_.backend().SetResult(Failure());
  const grpc::Status status = Correct("lost");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), HasSubstr("lost"));
  EXPECT_THAT(status.error_message(), Not(HasSubstr("/dev")));
  EXPECT_THAT(status.error_message(), Not(HasSubstr("illegal")));
  EXPECT_EQ(status.error_details(), "");
  const std::string log = running_.Stop();
  EXPECT_THAT(log, HasSubstr(R"("event":"device_error")"));
  EXPECT_THAT(log, HasSubstr("device 0: an illegal memory access"));
  EXPECT_THAT(log, HasSubstr(R"("level":"error")"));
}

TEST_P(DeviceMetrics, AFailureIsCountedAndServedOn) {
  const std::string errors =
      "\ncounterweight_device_errors_total{device=\"0\"} ";
  EXPECT_THAT(running_.Scrape(), HasSubstr(errors + "0"));
  running_.backend().SetResult(Failure());
  EXPECT_EQ(Correct("").error_code(), grpc::StatusCode::INTERNAL);
  running_.backend().SetResult({});
  EXPECT_TRUE(Correct("").ok());
  EXPECT_EQ(running_.Health(""), kServing);
  const std::string metrics = running_.Scrape();
  EXPECT_THAT(metrics, HasSubstr(errors + "1"));
  EXPECT_THAT(metrics, HasSubstr("\ncounterweight_ready 1\n"));
  EXPECT_THAT(metrics,
              HasSubstr("\ncounterweight_device_lost{device=\"0\"} 0\n"));
}

TEST_P(DeviceMetrics, ALostDeviceLeavesReadinessToTheOthers) {
  running_.backend().SetResult(Loss());
  EXPECT_EQ(Correct("").error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(running_.Health(""), kServing);
  EXPECT_THAT(running_.Scrape(),
              HasSubstr("\ncounterweight_device_lost{device=\"0\"} 1\n"));
  EXPECT_THAT(running_.Stop(), HasSubstr(R"("event":"device_lost")"));
}

TEST_P(DeviceMetrics, TheLastDevicesLossEndsReadinessForGood) {
  running_.backend().SetResult(Loss());
  running_.backend().SetAlive(false);
  EXPECT_FALSE(Correct("").ok());
  running_.backend().SetResult({});
  EXPECT_TRUE(Correct("").ok());
  EXPECT_EQ(running_.Health(""), kNotServing);
  EXPECT_EQ(running_.Health("counterweight.v1.CorrectionService"), kNotServing);
  // A new process may have the device back.
  EXPECT_THAT(running_.Get("/livez"), HasSubstr("503 Service Unavailable"));
  EXPECT_THAT(running_.Get("/readyz"), HasSubstr("\r\n\r\nfailed\n"));
  const std::string metrics = running_.Scrape();
  EXPECT_THAT(metrics, HasSubstr("\ncounterweight_ready 0\n"));
  EXPECT_THAT(metrics,
              HasSubstr("\ncounterweight_device_errors_total{device=\"0\"} 1"));
  // A drain makes it no better.
  running_.server().AnnounceDrain();
  EXPECT_THAT(running_.Get("/livez"), HasSubstr("503 Service Unavailable"));
  EXPECT_THAT(running_.Get("/readyz"), HasSubstr("\r\n\r\nfailed\n"));
}

TEST_P(DeviceMetrics, ALossDuringADrainShows) {
  running_.server().AnnounceDrain();
  EXPECT_THAT(running_.Get("/livez"), HasSubstr("200 OK"));
  running_.backend().SetResult(Loss());
  running_.backend().SetAlive(false);
  EXPECT_FALSE(Correct("").ok());
  EXPECT_THAT(running_.Get("/livez"), HasSubstr("503 Service Unavailable"));
  EXPECT_THAT(running_.Get("/livez"), HasSubstr("\r\n\r\nfailed\n"));
  EXPECT_EQ(running_.Health(""), kNotServing);
}

TEST_P(DeviceErrors, RequestsInFlightGetTheirOwnAnswers) {
  running_.backend().Close();
  auto other =
      std::async(std::launch::async, [this] { return Correct("other"); });
  running_.backend().WaitForCalls(1);
  running_.backend().SetResult(Failure());
  auto lost =
      std::async(std::launch::async, [this] { return Correct("lost"); });
  running_.backend().WaitForCalls(2);
  running_.backend().Open();
  EXPECT_EQ(lost.get().error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_TRUE(other.get().ok());
}

TEST_P(DeviceErrors, AFullDeviceIsWorthARetryAndNoFailure) {
  running_.backend().SetResult(Full());
  const grpc::Status status = Correct("");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("smaller batch"));
  EXPECT_EQ(DetailOf<google::rpc::RetryInfo>(status).retry_delay().seconds(),
            1);
  EXPECT_EQ(running_.Health(""), kServing);
  running_.backend().SetResult({});
  EXPECT_TRUE(Correct("").ok());
}

class DeviceTurns : public DeviceErrors {
 protected:
  static Config OfOneThread() {
    Config config = TestConfig();
    config.threads = 1;
    return config;
  }
  DeviceTurns() : DeviceErrors(OfOneThread()) {}
};

INSTANTIATE_TEST_SUITE_P(Rpcs, DeviceTurns, testing::Bool(), NameOfRpc);

// A stream that holds the device may need the only thread.
TEST_P(DeviceTurns, WaitingForADeviceHoldsNoThread) {
  running_.backend().SetTurn(kernels::Turn::kLater);
  auto waits = std::async(std::launch::async, [this] { return Correct("a"); });
  running_.backend().WaitForWaiting(1);
  running_.backend().SetTurn(kernels::Turn::kNow);
  EXPECT_TRUE(Correct("b").ok());
  running_.backend().WakeAll();
  EXPECT_TRUE(waits.get().ok());
}

// Its memory is free soon, whenever the device is.
TEST_P(DeviceTurns, AClientMayLeaveWhileItWaits) {
  running_.backend().SetTurn(kernels::Turn::kLater);
  const v1::CorrectRequest request = SmallRequest("gone");
  if (GetParam()) {
    StreamCall call(running_.channel());
    call.SendHeader(request);
    ASSERT_TRUE(call.IsAdmitted());
    call.SendTensors(request);
    running_.backend().WaitForWaiting(1);
  } else {
    grpc::ClientContext context;
    auto waits = std::async(std::launch::async, [&] {
      v1::CorrectResponse response;
      return running_.Correct(request, &response, &context);
    });
    running_.backend().WaitForWaiting(1);
    context.TryCancel();
    EXPECT_EQ(waits.get().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(running_.server().WaitUntilIdle(std::chrono::seconds(60)));
  running_.backend().WakeAll();  // too late for the one that has gone
  EXPECT_TRUE(Correct("next").ok());
}

TEST_P(DeviceMetrics, DeviceSecondsAddUp) {
  kernels::CorrectResult result;
  result.device = 0;
  result.device_seconds = 0.25;
  running_.backend().SetResult(result);
  EXPECT_TRUE(Correct("").ok());
  EXPECT_TRUE(Correct("").ok());
  EXPECT_THAT(
      running_.Scrape(),
      HasSubstr("\ncounterweight_device_seconds_total{device=\"0\"} 0.5\n"));
}

}  // namespace
}  // namespace counterweight::server
