// Batches in the background, and the end of a client.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "tests/client_cpp/fake_service.h"
#include "tests/client_cpp/test_batch.h"
#include "tests/testing/eventually.h"

namespace counterweight::client {
namespace {

using std::chrono::seconds;

class Submit : public testing::Test {
 protected:
  Submit() : batch_(2, 3) {
    options_.transport = Transport::kUnary;
    options_.max_in_flight = 2;
    service_.on_correct = [this](grpc::ServerContext* context,
                                 const v1::CorrectRequest& request,
                                 v1::CorrectResponse* response) {
      while (!answers_ && !context->IsCancelled()) std::this_thread::yield();
      response->set_request_id(request.request_id());
      return grpc::Status::OK;
    };
  }

  // False if the calls do not arrive.
  bool Arrive(int calls) const {
    return Eventually([&] { return service_.calls() >= calls; });
  }

  const TestBatch batch_;
  Options options_;
  std::atomic<bool> answers_ = false;
  FakeService service_;
  Response response_;
};

TEST_F(Submit, BlocksBeyondTheLimit) {
  Client client(service_.target(), options_);
  Response responses[3];
  std::future<Status> first = client.Submit(batch_.Weights(), &responses[0]);
  std::future<Status> second = client.Submit(batch_.Weights(), &responses[1]);
  std::future<std::future<Status>> third = std::async(std::launch::async, [&] {
    return client.Submit(batch_.Weights(), &responses[2]);
  });
  ASSERT_TRUE(Arrive(2));
  EXPECT_EQ(third.wait_for(seconds(0)), std::future_status::timeout);
  EXPECT_EQ(service_.calls(), 2);
  answers_ = true;
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_TRUE(third.get().get().ok());
  EXPECT_EQ(service_.calls(), 3);
}

TEST_F(Submit, AStopCancelsOneBatch) {
  Client client(service_.target(), options_);
  Response other;
  std::stop_source stop;
  std::future<Status> stopped =
      client.Submit(batch_.Weights(), &response_, {.stop = stop.get_token()});
  std::future<Status> kept = client.Submit(batch_.Weights(), &other);
  ASSERT_TRUE(Arrive(2));
  stop.request_stop();
  const Status status = stopped.get();
  EXPECT_EQ(status.code, StatusCode::kCancelled) << status.ToString();
  EXPECT_FALSE(status.request_id.empty());
  answers_ = true;
  EXPECT_TRUE(kept.get().ok());
}

TEST_F(Submit, CloseEndsEveryCall) {
  Client client(service_.target(), options_);
  std::future<Status> submitted = client.Submit(batch_.Weights(), &response_);
  ASSERT_TRUE(Arrive(1));
  client.Close();
  const Status status = submitted.get();
  EXPECT_EQ(status.code, StatusCode::kCancelled);
  EXPECT_EQ(status.message, "the client is closed");
  v1::GetServerInfoResponse info;
  EXPECT_EQ(client.GetServerInfo(&info).code, StatusCode::kCancelled);
  EXPECT_EQ(client.Submit(batch_.Weights(), &response_).get().code,
            StatusCode::kCancelled);
  EXPECT_EQ(service_.calls(), 1);
}

TEST_F(Submit, TheDestructorWaits) {
  auto client = std::make_unique<Client>(service_.target(), options_);
  std::future<Status> submitted = client->Submit(batch_.Weights(), &response_);
  ASSERT_TRUE(Arrive(1));
  client.reset();
  ASSERT_EQ(submitted.wait_for(seconds(0)), std::future_status::ready);
  EXPECT_EQ(submitted.get().code, StatusCode::kCancelled);
}

TEST_F(Submit, TheLimitIsChecked) {
  options_.max_in_flight = 0;
  Client client(service_.target(), options_);
  const Status status = client.Submit(batch_.Weights(), &response_).get();
  ASSERT_EQ(status.violations.size(), 1U);
  EXPECT_EQ(status.violations[0].field, "options.max_in_flight");
}

}  // namespace
}  // namespace counterweight::client
