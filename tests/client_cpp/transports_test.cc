// The answer's bytes do not depend on the batch's transport.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/method.h"
#include "kernels/corrector.h"
#include "tests/client_cpp/test_batch.h"
#include "tests/server/running_server.h"

namespace counterweight::client {
namespace {

class Transports : public testing::Test {
 protected:
  explicit Transports(const server::Config& config = server::TestConfig())
      : running_(config, kernels::MakeCpuCorrector(2)),
        target_(running_.server().addresses().front()) {}

  // Returns the answer to a generated stub.
  v1::CorrectResponse Want(const Request& request) {
    v1::CorrectResponse want;
    const grpc::Status status = running_.Correct(ToMessage(request), &want);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return want;
  }

  void ExpectOk(const Request& request, const Options& options) {
    Client client(target_, options);
    Response response;
    const Status status = client.Correct(request, &response);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(response.transport, options.transport);
    ExpectSame(response, Want(request));
  }

  static Options With(Transport transport, size_t chunk_bytes = 0) {
    Options options;
    options.transport = transport;
    options.chunk_bytes = chunk_bytes;
    return options;
  }

  server::RunningServer running_;
  const std::string target_;
};

TEST_F(Transports, UnaryAnswersAsAStubDoes) {
  const TestBatch padded(7, 301);
  const TestBatch packed({5, 0, 4097, 1, 300});
  for (const TestBatch* batch : {&padded, &packed}) {
    ExpectOk(batch->Weights(), With(Transport::kUnary));
    ExpectOk(batch->Everything(), With(Transport::kUnary));
  }
}

TEST_F(Transports, StreamsOfEveryChunkSizeAnswerTheSame) {
  const TestBatch small(5, 37);
  for (const size_t chunk_bytes : {1, 2, 3, 5}) {
    ExpectOk(small.Everything(), With(Transport::kStream, chunk_bytes));
  }
  const TestBatch padded(70, 3001);
  const TestBatch packed({5, 0, 40970, 1, 300, 77777});
  for (const TestBatch* batch : {&padded, &packed}) {
    for (const size_t chunk_bytes : {size_t{0}, size_t{4099}, size_t{65536},
                                     size_t{1} << 20, size_t{16} << 20}) {
      ExpectOk(batch->Everything(), With(Transport::kStream, chunk_bytes));
    }
    ExpectOk(batch->Weights(), With(Transport::kStream));
  }
}

TEST_F(Transports, EmptyBatchesHaveAnswersToo) {
  const TestBatch no_rows(0, 5);
  const TestBatch no_length(5, 0);
  const TestBatch no_sequences(std::vector<int64_t>{});
  for (const Transport transport : {Transport::kUnary, Transport::kStream}) {
    for (const TestBatch* batch : {&no_rows, &no_length, &no_sequences}) {
      ExpectOk(batch->Everything(), With(transport));
    }
  }
}

TEST_F(Transports, VersionsOfTokensGiveTheSameStaleness) {
  const TestBatch batch(7, 3001);
  std::vector<int32_t> versions;
  for (int64_t i = 0; i < batch.num_positions(); ++i) {
    versions.push_back(static_cast<int32_t>(i / 700 % 12) - 1);
  }
  Request request = batch.Weights();
  request.header.mutable_labels()->set_policy_version(10);
  Request spans = request;
  for (int64_t row = 0; row < 7; ++row) {
    v1::VersionSpan* const span = spans.header.add_version_spans();
    span->set_sequence(row);
    span->set_start(5);
    span->set_end(3001);
    span->set_policy_version(row);
  }
  request.inputs.push_back(PolicyVersions(versions));
  for (const Request* each : {&request, &spans}) {
    const std::string want = Want(*each).staleness().SerializeAsString();
    EXPECT_NE(want, "");
    for (const Options& options :
         {With(Transport::kUnary), With(Transport::kStream, 4099)}) {
      Client client(target_, options);
      Response response;
      const Status status = client.Correct(*each, &response);
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(response.message.staleness().SerializeAsString(), want);
    }
  }
}

TEST_F(Transports, OutputsGoWhereTheRequestSays) {
  const TestBatch batch(7, 3001);
  const size_t positions = static_cast<size_t>(batch.num_positions());
  for (const Transport transport : {Transport::kUnary, Transport::kStream}) {
    std::vector<float> weights(positions, -1);
    Request request = batch.Weights();
    request.outputs = {
        {v1::TENSOR_ROLE_KEEP_MASK},
        {v1::TENSOR_ROLE_WEIGHTS, weights.data(), positions * sizeof(float)}};
    Client client(target_, With(transport));
    Response response;
    const Status status = client.Correct(request, &response);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const auto* const output = response.Find(v1::TENSOR_ROLE_WEIGHTS);
    ASSERT_NE(output, nullptr);
    EXPECT_EQ(output->As<float>().data(), weights.data());
    ExpectSame(response, Want(request));
  }
}

TEST_F(Transports, ProgressIsToldFromNothingToAll) {
  const TestBatch batch(3, 1000);
  constexpr size_t kAll = 3 * 1000 * (4 + 4 + 1);
  using Told = std::vector<std::pair<size_t, size_t>>;
  const auto told_by = [&](Transport transport, size_t chunk_bytes) {
    Told told;
    Client client(target_, With(transport, chunk_bytes));
    Response response;
    const Status status = client.Correct(
        batch.Weights(), &response, {.progress = [&](size_t sent, size_t all) {
          told.push_back({sent, all});
        }});
    EXPECT_TRUE(status.ok()) << status.ToString();
    return told;
  };
  EXPECT_EQ(told_by(Transport::kUnary, 0), (Told{{0, kAll}, {kAll, kAll}}));
  const Told told = told_by(Transport::kStream, 1000);
  // 27 chunks at least: none holds bytes of two tensors.
  EXPECT_GE(told.size(), 28U);
  EXPECT_EQ(told.front(), std::make_pair(size_t{0}, kAll));
  EXPECT_EQ(told.back(), std::make_pair(kAll, kAll));
  for (size_t i = 1; i < told.size(); ++i) {
    EXPECT_GT(told[i].first, told[i - 1].first);
    EXPECT_LE(told[i].first - told[i - 1].first, 1000U);
  }
}

TEST_F(Transports, ProgressEndsWhereTheCallFails) {
  const TestBatch batch(3, 1000);
  Request request = batch.Weights();
  *request.header.mutable_method() = Preset("token_tis", {{"uper", 2}});
  for (const Transport transport : {Transport::kUnary, Transport::kStream}) {
    std::vector<size_t> told;
    Client client(target_, With(transport));
    Response response;
    EXPECT_FALSE(
        client
            .Correct(request, &response,
                     {.progress = [&](size_t sent,
                                      size_t) { told.push_back(sent); }})
            .ok());
    EXPECT_EQ(told, std::vector<size_t>{0});
  }
}

TEST_F(Transports, AReusedResponseKeepsItsMemory) {
  const TestBatch large(20, 300);
  const TestBatch small(2, 5);
  Client client(target_);
  Response response;
  ASSERT_TRUE(client.Correct(large.Weights(), &response).ok());
  const std::byte* const data = response.outputs[0].data;
  ASSERT_TRUE(client.Correct(small.Weights(), &response).ok());
  EXPECT_EQ(response.outputs[0].data, data);
  ExpectSame(response, Want(small.Weights()));
}

TEST_F(Transports, AutomaticIsUnaryBelowTheThresholdAndAStreamAbove) {
  const TestBatch batch(64, 512);
  Options options;
  options.stream_from_bytes = static_cast<size_t>(batch.num_positions()) * 9;
  Response response;
  ASSERT_TRUE(
      Client(target_, options).Correct(batch.Weights(), &response).ok());
  EXPECT_EQ(response.transport, Transport::kStream);
  ++options.stream_from_bytes;
  ASSERT_TRUE(
      Client(target_, options).Correct(batch.Weights(), &response).ok());
  EXPECT_EQ(response.transport, Transport::kUnary);
}

TEST_F(Transports, DialectsAnswerTheSame) {
  const TestBatch batch(7, 301);
  Request request = batch.Weights();
  ASSERT_TRUE(Dialect("verl",
                      R"({"rollout_is": "token", "rollout_is_threshold": 2.0})",
                      request.header.mutable_method())
                  .ok());
  ExpectOk(request, With(Transport::kUnary));
  ExpectOk(request, With(Transport::kStream));
}

TEST_F(Transports, ViolationsAreTheSame) {
  const TestBatch batch(7, 301);
  Request request = batch.Weights();
  *request.header.mutable_method() = Preset("token_tis", {{"uper", 2}});
  request.header.mutable_labels()->set_run("not a label");
  std::vector<std::string> texts;
  for (const Transport transport : {Transport::kUnary, Transport::kStream}) {
    Client client(target_, With(transport));
    Response response;
    const Status status = client.Correct(request, &response);
    EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
    EXPECT_EQ(status.violations.size(), 2U) << status.ToString();
    texts.push_back(status.ToString());
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_F(Transports, SharedMemoryIsRefusedWhereThereIsNone) {
  const TestBatch batch(2, 5);
  Client client(target_, With(Transport::kSharedMemory));
  Response response;
  const Status status = client.Correct(batch.Weights(), &response);
  EXPECT_EQ(status.code, StatusCode::kFailedPrecondition);
}

TEST_F(Transports, ManyThreadsShareAClient) {
  const TestBatch batch(16, 2000);
  const v1::CorrectResponse want = Want(batch.Everything());
  Client client(target_);
  std::vector<std::jthread> threads;
  for (const Transport transport :
       {Transport::kUnary, Transport::kStream, Transport::kAuto,
        Transport::kStream, Transport::kUnary}) {
    threads.emplace_back([&, transport] {
      Response response;
      for (int i = 0; i < 5; ++i) {
        Request request = batch.Everything();
        const Status status =
            client.Correct(request, &response, {.transport = transport});
        ASSERT_TRUE(status.ok()) << status.ToString();
        ExpectSame(response, want);
      }
    });
  }
}

TEST_F(Transports, InfoAndMethodsComeToo) {
  Client client(target_);
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(client.GetServerInfo(&info).ok());
  EXPECT_EQ(info.numerics_version(), kernels::kNumericsVersion);
  v1::ListMethodsResponse methods;
  ASSERT_TRUE(client.ListMethods(&methods).ok());
  EXPECT_GT(methods.methods_size(), 10);
}

class SmallLimits : public Transports {
 protected:
  SmallLimits() : Transports(Limits()) {}

  static server::Config Limits() {
    server::Config config = server::TestConfig();
    config.max_message_bytes = 10000;
    config.max_bytes_in_flight = 1000000;
    return config;
  }
};

TEST_F(SmallLimits, ABatchThatIsTooLargeIsNotTriedAgain) {
  const TestBatch batch(100, 5000);
  for (const Transport transport : {Transport::kUnary, Transport::kStream}) {
    Client client(target_, With(transport));
    Response response;
    const Status status = client.Correct(batch.Weights(), &response);
    EXPECT_EQ(status.code, StatusCode::kResourceExhausted) << status.ToString();
    EXPECT_FALSE(status.retry_after);
    EXPECT_EQ(response.attempts, 1);
  }
}

TEST_F(SmallLimits, AStreamTakesWhatIsTooLargeForAMessage) {
  const TestBatch batch(10, 1000);
  Client client(target_, With(Transport::kStream, /*chunk_bytes=*/4096));
  Response response;
  const Status status = client.Correct(batch.Weights(), &response);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

}  // namespace
}  // namespace counterweight::client
