// Every kind of failed call, and its status.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "client/cpp/client.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "tests/client_cpp/fake_service.h"
#include "tests/client_cpp/test_batch.h"

namespace counterweight::client {
namespace {

using std::chrono::milliseconds;

Options Once() {
  Options options;
  options.max_attempts = 1;
  return options;
}

google::rpc::RetryInfo RetryAfter(milliseconds delay) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(delay.count() / 1000);
  retry.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>(delay.count() % 1000 * 1000000));
  return retry;
}

// An answer of the contract's defaults for TestBatch::Weights.
grpc::Status AnswerZeros(const v1::CorrectRequest& request,
                         v1::CorrectResponse* response) {
  response->set_request_id(request.request_id());
  v1::Tensor* const tensor = response->add_tensors();
  tensor->set_role(v1::TENSOR_ROLE_KEEP_MASK);
  tensor->set_dtype(v1::D_TYPE_U8);
  tensor->set_data(std::string(request.tensors(2).data().size(), '\0'));
  return grpc::Status::OK;
}

// Both transports; each must fail in the same way.
class Errors : public testing::TestWithParam<Transport> {
 protected:
  Errors() : batch_(2, 5) {
    service_.on_correct = [this](grpc::ServerContext* context, const auto&,
                                 auto*) { return answer(context); };
    service_.on_stream = [this](grpc::ServerContext* context,
                                FakeService::Stream* stream) {
      v1::CorrectStreamRequest header;
      stream->Read(&header);
      return answer(context);
    };
  }

  Status Send(Options options = Once(), CallOptions call_options = {}) {
    options.transport = GetParam();
    Client client(service_.target(), options);
    return client.Correct(batch_.Weights(), &response_, call_options);
  }

  std::function<grpc::Status(grpc::ServerContext*)> answer;
  const TestBatch batch_;
  Response response_;
  FakeService service_;
};

TEST_P(Errors, ListsEveryViolation) {
  answer = [](grpc::ServerContext*) {
    google::rpc::BadRequest bad_request;
    for (const char* field : {"method.preset.name", "tensors[1].dtype"}) {
      auto* const violation = bad_request.add_field_violations();
      violation->set_field(field);
      violation->set_description("is wrong");
    }
    return StatusWith(grpc::StatusCode::INVALID_ARGUMENT, "two violations",
                      bad_request);
  };
  const Status status = Send();
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message, "two violations");
  ASSERT_EQ(status.violations.size(), 2U);
  EXPECT_EQ(status.violations[0].field, "method.preset.name");
  EXPECT_EQ(status.violations[1].field, "tensors[1].dtype");
  EXPECT_EQ(status.violations[1].description, "is wrong");
  EXPECT_EQ(status.ToString(),
            "INVALID_ARGUMENT: two violations\n"
            "  method.preset.name: is wrong\n"
            "  tensors[1].dtype: is wrong");
  EXPECT_FALSE(status.retry_after);
  EXPECT_EQ(status.request_id, "weights");
}

TEST_P(Errors, TellsWhenToTryAgain) {
  answer = [](grpc::ServerContext*) {
    return StatusWith(grpc::StatusCode::RESOURCE_EXHAUSTED, "no room",
                      RetryAfter(milliseconds(1250)));
  };
  const Status status = Send();
  EXPECT_EQ(status.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(status.retry_after, milliseconds(1250));
  EXPECT_EQ(service_.calls(), 1);
}

TEST_P(Errors, ReadsThePushbackOfTheTrailers) {
  answer = [](grpc::ServerContext* context) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "750");
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no room");
  };
  EXPECT_EQ(Send().retry_after, milliseconds(750));
}

TEST_P(Errors, TriesAgainWhatWasNotAdmitted) {
  answer = [](grpc::ServerContext*) {
    return StatusWith(grpc::StatusCode::UNAVAILABLE, "draining",
                      RetryAfter(milliseconds(1)));
  };
  Options options;
  options.max_attempts = 4;
  EXPECT_EQ(Send(options).code, StatusCode::kUnavailable);
  EXPECT_EQ(service_.calls(), 4);
  EXPECT_EQ(response_.attempts, 4);
}

TEST_P(Errors, ObeysANegativePushback) {
  answer = [](grpc::ServerContext* context) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "-1");
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "go away");
  };
  EXPECT_EQ(Send(Options()).code, StatusCode::kUnavailable);
  EXPECT_EQ(service_.calls(), 1);
}

TEST_P(Errors, APushbackOfNothingIsTriedAgainAtOnce) {
  answer = [](grpc::ServerContext* context) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "0");
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no room");
  };
  Options options;
  options.max_attempts = 4;
  EXPECT_EQ(Send(options).retry_after, milliseconds(0));
  EXPECT_EQ(service_.calls(), 4);
}

TEST_P(Errors, DelaysThatNoClockCanCount) {
  constexpr milliseconds kTenYears = std::chrono::hours(10 * 365 * 24);
  for (const auto& [seconds, nanos, low, high] :
       {std::tuple{INT64_MIN, INT32_MIN, milliseconds(0), milliseconds(0)},
        {int64_t{-1}, 0, milliseconds(0), milliseconds(0)},
        {INT64_MAX, INT32_MAX, kTenYears - milliseconds(1000), kTenYears}}) {
    answer = [seconds = seconds, nanos = nanos](grpc::ServerContext*) {
      google::rpc::RetryInfo retry;
      retry.mutable_retry_delay()->set_seconds(seconds);
      retry.mutable_retry_delay()->set_nanos(nanos);
      return StatusWith(grpc::StatusCode::RESOURCE_EXHAUSTED, "no room", retry);
    };
    Options options;
    options.max_attempts = 2;
    const Status status = Send(options);
    ASSERT_TRUE(status.retry_after);
    EXPECT_GE(*status.retry_after, low);
    EXPECT_LE(*status.retry_after, high);
    // The client waits for the pause, or it exceeds the timeout.
    EXPECT_EQ(response_.attempts, seconds < 0 ? 2 : 1);
  }
  answer = [](grpc::ServerContext* context) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms",
                                 std::to_string(INT64_MAX));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "go away");
  };
  EXPECT_EQ(Send(Options()).retry_after, kTenYears);
  EXPECT_EQ(response_.attempts, 1);
}

TEST_P(Errors, TriesNothingElseAgain) {
  for (const grpc::StatusCode code :
       {grpc::StatusCode::INTERNAL, grpc::StatusCode::RESOURCE_EXHAUSTED,
        grpc::StatusCode::UNIMPLEMENTED, grpc::StatusCode::ABORTED}) {
    const int before = service_.calls();
    answer = [code](grpc::ServerContext*) { return grpc::Status(code, "no"); };
    EXPECT_EQ(Send(Options()).code, static_cast<StatusCode>(code));
    EXPECT_EQ(service_.calls(), before + 1);
  }
}

TEST_P(Errors, TheTimeoutEndsTheCall) {
  answer = [](grpc::ServerContext* context) {
    WaitForCancellation(context);
    return grpc::Status::OK;
  };
  const Status status = Send(Options(), {.timeout = milliseconds(50)});
  EXPECT_EQ(status.code, StatusCode::kDeadlineExceeded);
  EXPECT_EQ(response_.attempts, 1);
}

TEST_P(Errors, ATimeoutOfNothingIsRefused) {
  const Status status = Send(Options(), {.timeout = milliseconds(0)});
  ASSERT_EQ(status.violations.size(), 1U);
  EXPECT_EQ(status.violations[0].field, "call_options.timeout");
  EXPECT_EQ(service_.calls(), 0);
}

TEST_P(Errors, AStopEndsTheCallOnBothSides) {
  std::stop_source stop;
  std::promise<void> began;
  answer = [&](grpc::ServerContext* context) {
    began.set_value();
    WaitForCancellation(context);
    return grpc::Status::OK;
  };
  std::jthread stopper([&] {
    began.get_future().wait();
    stop.request_stop();
  });
  const Status status = Send(Options(), {.stop = stop.get_token()});
  EXPECT_EQ(status.code, StatusCode::kCancelled);
  EXPECT_EQ(service_.calls(), 1);
}

TEST_P(Errors, AStopBeforehandSendsNothing) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(Send(Options(), {.stop = stop.get_token()}).code,
            StatusCode::kCancelled);
  EXPECT_EQ(service_.calls(), 0);
}

INSTANTIATE_TEST_SUITE_P(Transports, Errors,
                         testing::Values(Transport::kUnary, Transport::kStream),
                         [](const auto& param) {
                           return std::string(ToString(param.param));
                         });

TEST(Retries, KeepTheRequestIdThatTheLibraryMade) {
  FakeService service;
  std::vector<std::string> ids;
  service.on_correct = [&](grpc::ServerContext*,
                           const v1::CorrectRequest& request,
                           v1::CorrectResponse* response) {
    ids.push_back(request.request_id());
    if (ids.size() < 3) {
      return StatusWith(grpc::StatusCode::RESOURCE_EXHAUSTED, "no room",
                        RetryAfter(milliseconds(0)));
    }
    return AnswerZeros(request, response);
  };
  const TestBatch batch(2, 5);
  Request request = batch.Weights();
  request.header.clear_request_id();
  Client client(service.target());
  Response response;
  const Status status = client.Correct(request, &response);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(response.attempts, 3);
  ASSERT_EQ(ids.size(), 3U);
  EXPECT_EQ(ids[0].size(), 32U);
  EXPECT_EQ(ids[1], ids[0]);
  EXPECT_EQ(ids[2], ids[0]);
  EXPECT_EQ(status.request_id, ids[0]);
}

TEST(UnaryAnswer, MustHaveTheLayoutsBytes) {
  // The answer has ten positions.
  for (const size_t bytes : {0, 9, 10, 11, 1000}) {
    FakeService service;
    service.on_correct = [bytes](grpc::ServerContext*,
                                 const v1::CorrectRequest& request,
                                 v1::CorrectResponse* response) {
      AnswerZeros(request, response);
      response->mutable_tensors(0)->mutable_data()->resize(bytes);
      return grpc::Status::OK;
    };
    const TestBatch batch(2, 5);
    Client client(service.target());
    Response response;
    const Status status = client.Correct(batch.Weights(), &response);
    if (bytes == 10) {
      EXPECT_TRUE(status.ok()) << status.ToString();
      continue;
    }
    EXPECT_EQ(status.code, StatusCode::kInternal);
    const std::string what =
        "tensors[0] has " + std::to_string(bytes) + " bytes";
    EXPECT_NE(status.message.find(what), std::string::npos) << status.message;
  }
}

// Ends every call at once, without a message.
class Silent final : public grpc::CallbackGenericService {
  class Ended final : public grpc::ServerGenericBidiReactor {
   public:
    Ended() { Finish(grpc::Status::OK); }
    void OnDone() override { delete this; }
  };
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new Ended;
  }
};

TEST(UnaryAnswer, MustBeThere) {
  Silent silent;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterCallbackGenericService(&silent);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  Options options = Once();
  options.transport = Transport::kUnary;
  Client client("127.0.0.1:" + std::to_string(port), options);
  const TestBatch batch(2, 5);
  Response response;
  const Status status = client.Correct(batch.Weights(), &response);
  EXPECT_EQ(status.code, StatusCode::kUnimplemented) << status.ToString();
  EXPECT_NE(status.message.find("without an answer"), std::string::npos)
      << status.message;
}

}  // namespace
}  // namespace counterweight::client
