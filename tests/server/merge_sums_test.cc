// MergeSums over the wire.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpc/compression.h"
#include "gtest/gtest.h"
#include "kernels/corrector.h"
#include "kernels/partial_sums.h"
#include "server/call/merge_work.h"
#include "server/engine/message_bytes.h"
#include "tests/server/raw_unary.h"
#include "tests/server/running_server.h"

namespace counterweight::server {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr char kMergePath[] = "/counterweight.v1.CorrectionService/MergeSums";
constexpr char kGroupPath[] =
    "/counterweight.v1.CorrectionService/GroupAdvantages";
constexpr unsigned kRowLength = 7;

// Rows of a batch with sizes at which the order of addition would matter.
v1::CorrectRequest RowsOf(std::initializer_list<unsigned> rows) {
  std::vector<float> rollout;
  std::vector<float> old;
  std::string mask;
  for (const unsigned row : rows) {
    std::mt19937 random(row);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    for (unsigned i = 0; i < kRowLength; ++i) {
      rollout.push_back(-4.0F + uniform(random));
      const float size = std::pow(10.0F, 3.0F * uniform(random) - 3.0F);
      old.push_back(rollout.back() + size * uniform(random));
      mask.push_back(row % 5 == 0 || i == row % kRowLength ? '\0' : '\1');
    }
  }
  v1::CorrectRequest request = SmallRequest();
  v1::PaddedLayout* const layout = request.mutable_layout()->mutable_padded();
  layout->set_num_sequences(static_cast<int64_t>(rows.size()));
  layout->set_length(kRowLength);
  const size_t bytes = rollout.size() * sizeof(float);
  request.mutable_tensors(0)->set_data(rollout.data(), bytes);
  request.mutable_tensors(1)->set_data(old.data(), bytes);
  request.mutable_tensors(2)->set_data(mask);
  request.mutable_method()->mutable_preset()->set_name("geo_rs_token_tis");
  request.set_partial_sums(true);
  return request;
}

v1::CorrectRequest AllRows() {
  return RowsOf({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}

// All but the number of parts.
std::string WithoutParts(v1::PartialSums sums) {
  sums.set_sums(kernels::kPartialParts, 0.0);
  return MessageBytes(sums);
}

// The members that do not depend on the way to the answer.
std::string NumbersOf(v1::CorrectResponse answer) {
  answer.clear_tensors();
  answer.clear_sums();
  answer.clear_request_id();
  answer.clear_backend();
  answer.clear_timing();
  return MessageBytes(answer);
}

class MergeSumsTest : public testing::Test {
 protected:
  static Config WithMetrics() {
    Config config = TestConfig();
    config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
    return config;
  }

  explicit MergeSumsTest(const Config& config = WithMetrics())
      : running_(config, kernels::MakeCpuCorrector(2)) {}

  v1::CorrectResponse Correct(const v1::CorrectRequest& request) {
    v1::CorrectResponse response;
    const grpc::Status status = running_.Correct(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  grpc::Status Merge(
      const v1::MergeSumsRequest& request, v1::MergeSumsResponse* response,
      grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
    grpc::ClientContext context;
    context.set_compression_algorithm(compression);
    return v1::CorrectionService::NewStub(running_.channel())
        ->MergeSums(&context, request, response);
  }

  grpc::Status Merge(const v1::MergeSumsRequest& request) {
    v1::MergeSumsResponse response;
    return Merge(request, &response);
  }

  grpc::Status MergeBytes(const std::string& bytes) {
    RawUnary call(running_.channel(), kMergePath);
    EXPECT_TRUE(call.Send(bytes));
    return call.Finish();
  }

  RunningServer running_;
};

TEST_F(MergeSumsTest, IsAnnounced) {
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(v1::CorrectionService::NewStub(running_.channel())
                  ->GetServerInfo(&context, {}, &info)
                  .ok());
  EXPECT_THAT(info.features(), Contains("partial_sums"));
}

TEST_F(MergeSumsTest, PartsInAnyOrderGiveTheAnswerOfOneRequest) {
  const v1::CorrectResponse whole = Correct(AllRows());
  v1::MergeSumsRequest request;
  *request.mutable_method() = AllRows().method();
  for (const v1::CorrectRequest& part :
       {RowsOf({7, 3, 11}), RowsOf({}), RowsOf({0, 1, 2, 4, 5, 6}),
        RowsOf({10, 9, 8})}) {
    *request.add_parts() = Correct(part).sums();
  }
  auto& parts = *request.mutable_parts();
  for (int rotation = 0; rotation < parts.size(); ++rotation) {
    std::rotate(parts.begin(), parts.begin() + 1, parts.end());
    v1::MergeSumsResponse response;
    const grpc::Status status = Merge(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.sums().sums(kernels::kPartialParts), 4.0);
    EXPECT_EQ(WithoutParts(response.sums()), WithoutParts(whole.sums()));
    EXPECT_EQ(NumbersOf(response.answer()), NumbersOf(whole));
    EXPECT_FALSE(response.has_counts());
    EXPECT_EQ(response.counts_refusal(), "");
  }
  request.clear_method();
  v1::MergeSumsResponse response;
  ASSERT_TRUE(Merge(request, &response).ok());
  EXPECT_EQ(WithoutParts(response.sums()), WithoutParts(whole.sums()));
  EXPECT_FALSE(response.has_answer());
}

TEST_F(MergeSumsTest, ADefaultThatIsNamedIsTheSameOption) {
  v1::CorrectRequest named = RowsOf({2, 3});
  named.set_non_finite_policy(v1::NON_FINITE_POLICY_REJECT);
  v1::CorrectRequest other = named;
  other.set_non_finite_policy(v1::NON_FINITE_POLICY_DROP);
  v1::MergeSumsRequest request;
  *request.mutable_method() = named.method();
  *request.add_parts() = Correct(RowsOf({1})).sums();
  *request.add_parts() = Correct(named).sums();
  EXPECT_TRUE(Merge(request).ok());
  *request.add_parts() = Correct(other).sums();
  EXPECT_THAT(Merge(request).error_message(),
              HasSubstr("parts: are not of one method"));
}

TEST_F(MergeSumsTest, AMessageHasALargestSize) {
  const v1::PartialSums part = Correct(AllRows()).sums();
  EXPECT_LE(part.ByteSizeLong(), size_t{8} << 10);
  v1::MergeSumsRequest request;
  while (request.ByteSizeLong() <= kMaxMergeBytes) *request.add_parts() = part;
  EXPECT_GT(request.parts_size(), 32);
  for (const grpc_compression_algorithm compression :
       {GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP}) {
    v1::MergeSumsResponse response;
    const grpc::Status status = Merge(request, &response, compression);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(),
              "a counterweight.v1.MergeSumsRequest has at most 262144 bytes "
              "after decompression");
  }
  request.mutable_parts()->RemoveLast();
  for (const grpc_compression_algorithm compression :
       {GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP}) {
    v1::MergeSumsResponse response;
    const grpc::Status status = Merge(request, &response, compression);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.sums().sums(kernels::kPartialParts),
              request.parts_size());
  }
}

TEST_F(MergeSumsTest, OtherBytesAreRefused) {
  for (const std::string bytes :
       {"\x0a\x05x", "\x0a", "\x0a\xff\xff\xff\xff\x0f", "\x12\x02\x0a\x01"}) {
    const grpc::Status status = MergeBytes(bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(),
              "the request is not a counterweight.v1.MergeSumsRequest: its "
              "bytes do not parse");
  }
  const grpc::Status empty = MergeBytes("");
  EXPECT_EQ(empty.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto detail = DetailOf<google::rpc::BadRequest>(empty);
  ASSERT_EQ(detail.field_violations_size(), 1);
  EXPECT_EQ(detail.field_violations(0).field(), "parts");
}

TEST_F(MergeSumsTest, EveryWrongPartIsNamed) {
  v1::MergeSumsRequest request;
  *request.add_parts() = Correct(AllRows()).sums();
  request.add_parts();
  *request.add_parts() = request.parts(0);
  request.mutable_parts(2)->set_sums(kernels::kPartialSequences, 0.5);
  const auto detail = DetailOf<google::rpc::BadRequest>(Merge(request));
  ASSERT_EQ(detail.field_violations_size(), 2);
  EXPECT_EQ(detail.field_violations(0).field(), "parts[1].maxima");
  EXPECT_EQ(detail.field_violations(1).field(), "parts[2].sums");
}

TEST_F(MergeSumsTest, IsRefusedWhileTheServerDrains) {
  v1::MergeSumsRequest request;
  *request.add_parts() = Correct(AllRows()).sums();
  ASSERT_TRUE(Merge(request).ok());
  running_.server().RefuseNewWork();
  const grpc::Status refused = Merge(request);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_GE(DetailOf<google::rpc::RetryInfo>(refused).retry_delay().seconds(),
            1);
  EXPECT_TRUE(running_.server().WaitUntilIdle(std::chrono::minutes(1)));
}

TEST_F(MergeSumsTest, IsCountedAndLogged) {
  v1::MergeSumsRequest request;
  *request.add_parts() = Correct(AllRows()).sums();
  ASSERT_TRUE(Merge(request).ok());
  ASSERT_FALSE(Merge({}).ok());
  ASSERT_TRUE(running_.server().WaitUntilIdle(std::chrono::minutes(1)));
  const std::string page = running_.Scrape();
  for (const char* line :
       {"counterweight_requests_total{code=\"OK\",method=\"MergeSums\"} 1\n",
        "counterweight_requests_total{code=\"INVALID_ARGUMENT\",method="
        "\"MergeSums\"} 1\n",
        "\ncounterweight_bytes_in_flight 0\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  const std::string log = running_.Stop();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 3) << log;
  EXPECT_THAT(log, HasSubstr(R"("rpc":"MergeSums")"));
}

// Its work waits for its turn, as that of other RPCs.
TEST(MergeSums, AFullServerRefusesIt) {
  Config config = TestConfig();
  config.max_requests_in_flight = 1;
  config.max_queued_requests = 0;
  RunningServer running(config);
  const auto merge = [&] {
    grpc::ClientContext context;
    v1::MergeSumsResponse response;
    return v1::CorrectionService::NewStub(running.channel())
        ->MergeSums(&context, {}, &response);
  };
  running.backend().Close();
  auto busy = std::async(std::launch::async,
                         [&] { return running.Correct(SmallRequest()); });
  running.backend().WaitForCalls(1);
  EXPECT_EQ(merge().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  running.backend().Open();
  EXPECT_TRUE(busy.get().ok());
  EXPECT_TRUE(running.server().WaitUntilIdle(std::chrono::minutes(1)));
  EXPECT_EQ(merge().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// Parsed, a message is larger than its bytes.
TEST(MergeSums, CountsAsWhatItMayBecome) {
  Config config = TestConfig();
  config.max_bytes_in_flight = int64_t{16} << 20;
  RunningServer running(config);
  const auto send = [&](const char* path, size_t bytes) {
    RawUnary call(running.channel(), path);
    // An unknown field.
    std::string message = "\x7a";
    for (size_t left = bytes; left > 0; left >>= 7) {
      message.push_back(
          static_cast<char>((left & 127) | (left > 127 ? 128 : 0)));
    }
    EXPECT_TRUE(call.Send(message + std::string(bytes, 'x')));
    return call.Finish();
  };
  EXPECT_EQ(send(kMergePath, 250000).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(send(kMergePath, 100000).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(send(kGroupPath, 1500000).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(send(kGroupPath, 500000).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(running.server().WaitUntilIdle(std::chrono::minutes(1)));
  EXPECT_EQ(running.server().bytes_in_flight(), 0);
}

}  // namespace
}  // namespace counterweight::server
