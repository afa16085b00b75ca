// CorrectStream answers like Correct, whatever the chunks.
#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/util/field_comparator.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/server/running_server.h"
#include "tests/server/stream_call.h"

namespace counterweight::server {
namespace {

// Rows of several lengths, one of them long, with some masked positions.
v1::CorrectRequest PackedRequest(const std::string& method) {
  v1::CorrectRequest request;
  auto* lengths =
      request.mutable_layout()->mutable_packed()->mutable_sequence_lengths();
  int64_t positions = 0;
  for (const int64_t length : {3, 0, 700, 1, 5000, 64}) {
    lengths->Add(length);
    positions += length;
  }
  const auto add = [&](v1::TensorRole role, v1::DType dtype) {
    request.add_tensors()->set_role(role);
    request.mutable_tensors()->rbegin()->set_dtype(dtype);
    return request.mutable_tensors()->rbegin()->mutable_data();
  };
  std::string* const rollout =
      add(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, v1::D_TYPE_F32);
  std::string* const old = add(v1::TENSOR_ROLE_OLD_LOG_PROBS, v1::D_TYPE_F32);
  std::string* const current =
      add(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, v1::D_TYPE_F32);
  std::string* const advantages =
      add(v1::TENSOR_ROLE_ADVANTAGES, v1::D_TYPE_F32);
  std::string* const mask = add(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8);
  for (int64_t i = 0; i < positions; ++i) {
    const auto append = [](float value, std::string* to) {
      to->append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    const auto k = static_cast<float>(i % 97);
    append(-1.0f - k / 100, rollout);
    append(-1.0f - k / 90, old);
    append(-1.0f - k / 80, current);
    append(k - 40, advantages);
    mask->push_back(i % 5 == 4 ? 0 : 1);
  }
  request.mutable_method()->mutable_preset()->set_name(method);
  return request;
}

class Streams : public ::testing::Test {
 protected:
  Streams() : running_(TestConfig(), kernels::MakeCpuCorrector(2)) {}

  void ExpectSameAnswers(v1::CorrectRequest request,
                         const std::vector<size_t>& chunk_sizes) {
    request.set_request_id("same");
    v1::CorrectResponse unary;
    const grpc::Status status = running_.Correct(request, &unary);
    ASSERT_TRUE(status.ok()) << status.error_message();
    unary.clear_timing();
    for (const size_t chunk_bytes : chunk_sizes) {
      SCOPED_TRACE(chunk_bytes);
      v1::CorrectResponse streamed;
      const grpc::Status end =
          Stream(running_.channel(), request, chunk_bytes, &streamed);
      ASSERT_TRUE(end.ok()) << end.error_message();
      streamed.clear_timing();
      // Means without terms are NaN.
      google::protobuf::util::DefaultFieldComparator numbers;
      numbers.set_treat_nan_as_equal(true);
      google::protobuf::util::MessageDifferencer differencer;
      differencer.set_field_comparator(&numbers);
      EXPECT_TRUE(differencer.Compare(streamed, unary));
    }
  }

  RunningServer running_;
};

TEST_F(Streams, GiveTheBytesOfCorrect) {
  for (const char* method : {"token_tis", "seq_mis", "geo_rs_token_tis"}) {
    SCOPED_TRACE(method);
    ExpectSameAnswers(PackedRequest(method), {0, 4096, 1000, 7});
  }
}

TEST_F(Streams, GiveTheBytesOfCorrectForLosses) {
  v1::CorrectRequest request = PackedRequest("token_tis");
  v1::PolicyLoss* const loss =
      request.mutable_method()->mutable_preset()->mutable_policy_loss();
  loss->set_surrogate(v1::SURROGATE_PPO_CLIP);
  loss->set_aggregation(v1::LOSS_AGGREGATION_TOKEN_MEAN);
  loss->set_denominator(v1::LOSS_DENOMINATOR_ORIGINAL);
  loss->set_clip_low(0.2);
  loss->set_clip_high(0.2);
  ExpectSameAnswers(request, {0, 4096, 999});
  loss->set_denominator(v1::LOSS_DENOMINATOR_KEPT);
  ExpectSameAnswers(request, {0, 4096});
}

TEST_F(Streams, ChunksMayEndInsideElements) {
  ExpectSameAnswers(SmallRequest(), {0, 1, 2, 3, 5});
}

TEST_F(Streams, ReturnWhatIsAskedFor) {
  v1::CorrectRequest request = PackedRequest("geo_rs_token_tis");
  for (const v1::TensorRole role :
       {v1::TENSOR_ROLE_SEQUENCE_REASONS, v1::TENSOR_ROLE_WEIGHTS,
        v1::TENSOR_ROLE_TOKEN_REASONS, v1::TENSOR_ROLE_KEEP_MASK}) {
    request.add_outputs(role);
  }
  ExpectSameAnswers(request, {0, 100});
}

TEST_F(Streams, BatchesWithoutTokensAreAnswered) {
  v1::CorrectRequest request = SmallRequest();
  for (v1::Tensor& tensor : *request.mutable_tensors()) tensor.clear_data();
  request.mutable_layout()->mutable_padded()->set_length(0);
  ExpectSameAnswers(request, {0});
  request.mutable_layout()->mutable_padded()->set_num_sequences(0);
  ExpectSameAnswers(request, {0});
}

TEST_F(Streams, SummariesCountBytes) {
  const v1::CorrectRequest request = PackedRequest("token_tis");
  StreamCall call(running_.channel());
  call.SendHeader(request);
  ASSERT_TRUE(call.IsAdmitted());
  call.SendTensors(request, 1000);
  call.ReadAnswer();
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_EQ(call.summary().received_bytes(), 5768U * 17);
  EXPECT_EQ(call.summary().sent_bytes(), 5768U * 5);
  EXPECT_GT(call.summary().timing().receive_seconds(), 0.0);
}

TEST_F(Streams, WorkWithoutWaitingForTheAdmission) {
  const v1::CorrectRequest request = PackedRequest("token_tis");
  StreamCall call(running_.channel());
  call.SendHeader(request);
  call.SendTensors(request, 512);
  call.CloseWriting();
  EXPECT_TRUE(call.IsAdmitted());
  EXPECT_EQ(call.ReadAnswer().tensors_size(), 2);
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(Streams, MayBeCompressed) {
  const v1::CorrectRequest request = PackedRequest("token_tis");
  v1::CorrectResponse unary;
  ASSERT_TRUE(running_.Correct(request, &unary).ok());
  StreamCall call(running_.channel());
  call.context().set_compression_algorithm(GRPC_COMPRESS_GZIP);
  call.SendHeader(request);
  ASSERT_TRUE(call.IsAdmitted());
  call.SendTensors(request, 4096);
  EXPECT_TRUE(call.ReadAnswer().tensors(0).data() == unary.tensors(0).data());
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(Streams, DriftCountsABatchOnceWhicheverWayItComes) {
  Config config = TestConfig();
  config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
  RunningServer running(config, kernels::MakeCpuCorrector(1));
  const v1::CorrectRequest request = SmallRequest("once", "r");
  v1::CorrectResponse response;
  EXPECT_TRUE(running.Correct(request, &response).ok());
  EXPECT_TRUE(Stream(running.channel(), request, 0, &response).ok());
  EXPECT_TRUE(Stream(running.channel(), request, 3, &response).ok());
  running.server().WaitUntilIdle(std::chrono::minutes(1));
  const std::string metrics = running.Scrape();
  EXPECT_THAT(metrics,
              ::testing::HasSubstr("counterweight_corrected_batches_total 1"));
  EXPECT_THAT(metrics, ::testing::HasSubstr("method=\"CorrectStream\"} 2"));
}

}  // namespace
}  // namespace counterweight::server
