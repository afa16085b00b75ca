// The regions of a batch's tensors: a real server registers memory, while the
// test answers the calls.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "google/rpc/error_details.pb.h"
#include "kernels/corrector.h"
#include "tests/client_cpp/fake_service.h"
#include "tests/client_cpp/test_batch.h"
#include "tests/server/running_server.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::client {
namespace {

using Handles = std::set<std::string>;

// Answers that the outputs are at their destinations.
grpc::Status AnswerInPlace(const v1::CorrectRequest& request,
                           v1::CorrectResponse* response) {
  *response->mutable_tensors() = request.destinations();
  return grpc::Status::OK;
}

using Answer = std::function<grpc::Status(
    grpc::ServerContext*, const v1::CorrectRequest&, v1::CorrectResponse*)>;

class Regions : public testing::Test {
 protected:
  Regions() : batch_(2, 5) {
    Lend("memory.sock");
    service_.on_correct = [this](grpc::ServerContext* context,
                                 const v1::CorrectRequest& request,
                                 v1::CorrectResponse* response) {
      Handles outputs;
      for (const v1::Tensor& tensor : request.destinations()) {
        outputs.insert(tensor.shared_memory().handle());
      }
      return TakeAnswer(std::move(outputs))(context, request, response);
    };
    options_.transport = Transport::kSharedMemory;
    options_.max_attempts = 1;
  }

  // Registers memory at a socket of that name, and no longer at the last one.
  void Lend(const std::string& name) {
    memory_.reset();
    server::Config config = server::TestConfig();
    config.shared_memory_socket = folder_.File(name);
    memory_ = std::make_unique<server::RunningServer>(
        config, kernels::MakeCpuCorrector(1));
    service_.info.set_shared_memory_socket(config.shared_memory_socket);
  }

  Request Weights() const {
    Request request = batch_.Weights();
    request.outputs = {{.role = v1::TENSOR_ROLE_WEIGHTS},
                       {.role = v1::TENSOR_ROLE_KEEP_MASK}};
    return request;
  }

  void ExpectOk(Client* client) {
    SetAnswer([](grpc::ServerContext*, const auto& request, auto* response) {
      return AnswerInPlace(request, response);
    });
    const Status status = client->Correct(Weights(), &response_);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  // Makes a call that ends with `code`, between successful ones.
  void Fail(StatusCode code, const CallOptions& call_options = {}) {
    Client client(service_.target(), options_);
    const Answer failing = TakeAnswer(std::nullopt);
    ExpectOk(&client);
    SetAnswer(failing);
    EXPECT_EQ(client.Correct(Weights(), &response_, call_options).code, code);
    ExpectOk(&client);
    ASSERT_EQ(Outputs().size(), 3U);
    ASSERT_EQ(Outputs()[0].size(), 1U);
    EXPECT_EQ(Outputs()[1], Outputs()[0]);
  }

  void SetAnswer(Answer answer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    answer_ = std::move(answer);
  }
  // Returns each call's output regions so far.
  std::vector<Handles> Outputs() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return outputs_;
  }
  void ClearOutputs() {
    const std::lock_guard<std::mutex> lock(mutex_);
    outputs_.clear();
  }

  const server::TemporaryFolder folder_;
  std::unique_ptr<server::RunningServer> memory_;
  const TestBatch batch_;
  Options options_;
  Response response_;

 private:
  // Returns the answer to a call with these outputs; an abandoned call may
  // still run when the next answer is set.
  Answer TakeAnswer(std::optional<Handles> outputs) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (outputs) outputs_.push_back(*std::move(outputs));
    return answer_;
  }

  std::mutex mutex_;  // guards the next two
  Answer answer_;
  std::vector<Handles> outputs_;

 protected:
  FakeService service_;
};

TEST_F(Regions, AreNotUsedAgainWhereTheServerMayStillWrite) {
  SetAnswer([](grpc::ServerContext* context, const auto&, auto*) {
    WaitForCancellation(context);
    return grpc::Status::OK;
  });
  Fail(StatusCode::kDeadlineExceeded,
       {.timeout = std::chrono::milliseconds(300)});
  EXPECT_NE(Outputs()[2], Outputs()[1]);
}

TEST_F(Regions, AreNotUsedAgainAfterAStop) {
  std::stop_source stop;
  SetAnswer([&stop](grpc::ServerContext* context, const auto&, auto*) {
    stop.request_stop();
    WaitForCancellation(context);
    return grpc::Status::OK;
  });
  Fail(StatusCode::kCancelled, {.stop = stop.get_token()});
  EXPECT_NE(Outputs()[2], Outputs()[1]);
}

TEST_F(Regions, AreNotUsedAgainAfterErrorsThatEitherEndMakes) {
  for (const grpc::StatusCode code :
       {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::INTERNAL,
        grpc::StatusCode::CANCELLED, grpc::StatusCode::DEADLINE_EXCEEDED,
        grpc::StatusCode::UNKNOWN}) {
    ClearOutputs();
    SetAnswer([code](grpc::ServerContext*, const auto&, auto*) {
      return grpc::Status(code, "perhaps not the server's word");
    });
    Fail(static_cast<StatusCode>(code));
    EXPECT_NE(Outputs()[2], Outputs()[1]) << code;
  }
}

TEST_F(Regions, AreUsedAgainAfterARefusal) {
  SetAnswer([](grpc::ServerContext*, const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "wrong");
  });
  Fail(StatusCode::kInvalidArgument);
  EXPECT_EQ(Outputs()[2], Outputs()[1]);
}

TEST_F(Regions, AreGivenBackToAServerWithoutRoom) {
  options_.max_attempts = 2;
  Client client(service_.target(), options_);
  ExpectOk(&client);
  int left = 1;
  SetAnswer([&left](grpc::ServerContext*, const auto& request, auto* response) {
    if (left-- == 0) return AnswerInPlace(request, response);
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_nanos(1000000);
    return StatusWith(grpc::StatusCode::RESOURCE_EXHAUSTED, "no room", retry);
  });
  EXPECT_TRUE(client.Correct(Weights(), &response_).ok());
  ASSERT_EQ(Outputs().size(), 3U);
  EXPECT_EQ(Outputs()[1], Outputs()[0]);
  EXPECT_NE(Outputs()[2], Outputs()[1]);
}

TEST_F(Regions, AreWhereTheAnswerMustBe) {
  Client client(service_.target(), options_);
  for (const auto& move :
       std::vector<std::function<void(v1::SharedMemoryRange*)>>{
           [](auto* range) { range->set_handle(std::string(16, 'x')); },
           [](auto* range) { range->set_offset(range->offset() + 64); },
           [](auto* range) { range->set_length(range->length() - 1); }}) {
    SetAnswer(
        [&move](grpc::ServerContext*, const auto& request, auto* response) {
          const grpc::Status status = AnswerInPlace(request, response);
          move(response->mutable_tensors(1)->mutable_shared_memory());
          return status;
        });
    const Status status = client.Correct(Weights(), &response_);
    EXPECT_EQ(status.code, StatusCode::kInternal);
    EXPECT_NE(status.message.find("tensors[1] is not where it was to be"),
              std::string::npos)
        << status.ToString();
  }
}

TEST_F(Regions, GoToTheSocketThatTheNextServerNames) {
  options_.max_attempts = 5;
  Client client(service_.target(), options_);
  ExpectOk(&client);
  EXPECT_EQ(response_.attempts, 1);
  Lend("elsewhere.sock");
  ExpectOk(&client);
  EXPECT_EQ(response_.attempts, 2);
  EXPECT_NE(Outputs()[1], Outputs()[0]);
}

}  // namespace
}  // namespace counterweight::client
