// Correct, end to end with the real codec and, where it matters, the real
// kernels.
#include <chrono>
#include <cmath>
#include <future>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/running_server.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

TEST(Correct, AnswersWithTheRealKernels) {
  RunningServer running(TestConfig(), kernels::MakeCpuCorrector(2));
  v1::CorrectResponse response;
  const grpc::Status status =
      running.Correct(SmallRequest("id-1", "run"), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();

  EXPECT_EQ(response.request_id(), "id-1");
  EXPECT_EQ(response.backend(), "cpu");
  EXPECT_EQ(response.numerics_version(), kernels::kNumericsVersion);
  EXPECT_GT(response.timing().compute_seconds(), 0);
  ASSERT_EQ(response.tensors_size(), 2);
  EXPECT_EQ(response.tensors(0).role(), v1::TENSOR_ROLE_WEIGHTS);
  std::vector<float> weights(6);
  ASSERT_EQ(response.tensors(0).data().size(), 24U);
  response.tensors(0).data().copy(reinterpret_cast<char*>(weights.data()), 24);
  EXPECT_FLOAT_EQ(weights[0], 1.0F);
  EXPECT_FLOAT_EQ(weights[1], std::exp(-0.5F));
  EXPECT_FLOAT_EQ(weights[2], std::exp(0.5F));
  EXPECT_EQ(weights[5], 0.0F) << "masked";
}

TEST(Correct, MakesARequestIdIfThereIsNone) {
  RunningServer running;
  v1::CorrectResponse first;
  v1::CorrectResponse second;
  ASSERT_TRUE(running.Correct(SmallRequest(), &first).ok());
  ASSERT_TRUE(running.Correct(SmallRequest(), &second).ok());
  EXPECT_FALSE(first.request_id().empty());
  EXPECT_NE(first.request_id(), second.request_id());
}

TEST(Correct, ListsEveryViolation) {
  RunningServer running;
  v1::CorrectRequest request = SmallRequest();
  request.clear_layout();
  request.clear_method();
  const grpc::Status status = running.Correct(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto detail = DetailOf<google::rpc::BadRequest>(status);
  EXPECT_GE(detail.field_violations_size(), 2);
  EXPECT_NE(status.error_message().find("layout"), std::string::npos);
}

TEST(Correct, NamesARefusedNonFiniteNumber) {
  RunningServer running(TestConfig(), kernels::MakeCpuCorrector(1));
  v1::CorrectRequest request = SmallRequest();
  const float nan = std::nanf("");
  request.mutable_tensors(1)->mutable_data()->replace(
      4 * sizeof(float), sizeof(float), reinterpret_cast<const char*>(&nan),
      sizeof(float));
  const grpc::Status status = running.Correct(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("sequence 1"), std::string::npos)
      << status.error_message();
  EXPECT_NE(status.error_message().find("token 1"), std::string::npos);
}

TEST(Correct, RefusesWhatIsTooMuchAtATimeWithAHint) {
  Config config = TestConfig();
  config.max_requests_in_flight = 1;
  config.max_queued_requests = 0;
  RunningServer running(config);
  running.backend().Close();
  auto first = std::async(std::launch::async,
                          [&] { return running.Correct(SmallRequest()); });
  running.backend().WaitForCalls(1);

  grpc::ClientContext context;
  v1::CorrectResponse response;
  const grpc::Status second =
      running.Correct(SmallRequest(), &response, &context);
  EXPECT_EQ(second.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto retry = DetailOf<google::rpc::RetryInfo>(second);
  EXPECT_EQ(retry.retry_delay().nanos(), 250'000'000);
  EXPECT_EQ(PushbackOf(context), "250");

  running.backend().Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(running.Correct(SmallRequest()).ok())
      << "the place is free again";
}

TEST(Correct, DoesNotComputeForAClientThatLeft) {
  Config config = TestConfig();
  config.threads = 1;
  RunningServer running(config);
  running.backend().Close();
  auto first = std::async(std::launch::async,
                          [&] { return running.Correct(SmallRequest()); });
  running.backend().WaitForCalls(1);

  // It waits behind the first one until its deadline has passed.
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(50));
  v1::CorrectResponse response;
  const grpc::Status second =
      running.Correct(SmallRequest("late"), &response, &context);
  EXPECT_EQ(second.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);

  // The server's copy of the deadline starts later by the transit time.
  EXPECT_FALSE(running.server().WaitUntilIdle(std::chrono::milliseconds(500)));
  running.backend().Open();
  EXPECT_TRUE(first.get().ok());
  const std::string log = running.Stop();
  const size_t success = log.find(R"("code":"OK")");
  EXPECT_NE(success, std::string::npos);
  EXPECT_EQ(log.find(R"("code":"OK")", success + 1), std::string::npos) << log;
}

// An unread answer is not a success: its retry must count.
TEST(Correct, AClientThatLeavesWhileItsBatchIsComputedIsNotAnswered) {
  RunningServer running;
  running.backend().Close();
  grpc::ClientContext context;
  v1::CorrectResponse response;
  auto call = std::async(std::launch::async, [&] {
    return running.Correct(SmallRequest(), &response, &context);
  });
  running.backend().WaitForCalls(1);
  context.TryCancel();
  EXPECT_EQ(call.get().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(Eventually([&] { return running.backend().IsAskedToStop(); }));
  running.backend().Open();
  EXPECT_TRUE(running.server().WaitUntilIdle(std::chrono::minutes(1)));
  EXPECT_EQ(running.Stop().find(R"("code":"OK")"), std::string::npos);
}

TEST(Correct, ServesManyClientsAtOnce) {
  RunningServer running(TestConfig(), kernels::MakeCpuCorrector(2));
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&running, i] {
      for (int j = 0; j < 25; ++j) {
        const grpc::Status status =
            running.Correct(SmallRequest("", "run-" + std::to_string(i)));
        EXPECT_TRUE(status.ok()) << status.error_message();
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace counterweight::server
