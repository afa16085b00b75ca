#include "server/engine/codec_versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "server/engine/codec.h"
#include "server/engine/correction_run.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void AddTo(v1::CorrectRequest* request, v1::TensorRole role, v1::DType dtype,
           std::string data) {
  v1::Tensor* const tensor = request->add_tensors();
  tensor->set_role(role);
  tensor->set_dtype(dtype);
  tensor->set_data(std::move(data));
}

// Two rows of two tokens; old - rollout is 0, 1, 0, 0; the last one is masked.
v1::CorrectRequest WithoutVersions() {
  v1::CorrectRequest request;
  request.mutable_layout()->mutable_padded()->set_num_sequences(2);
  request.mutable_layout()->mutable_padded()->set_length(2);
  AddTo(&request, v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, v1::D_TYPE_F32,
        BytesOf<float>({-1, -2, -1, -1}));
  AddTo(&request, v1::TENSOR_ROLE_OLD_LOG_PROBS, v1::D_TYPE_F32,
        BytesOf<float>({-1, -1, -1, -1}));
  AddTo(&request, v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8,
        BytesOf<uint8_t>({1, 1, 1, 0}));
  request.mutable_method()->mutable_preset()->set_name("token_tis");
  request.mutable_labels()->set_policy_version(7);
  return request;
}

v1::CorrectRequest WithTensor(const std::vector<int32_t>& versions) {
  v1::CorrectRequest request = WithoutVersions();
  AddTo(&request, v1::TENSOR_ROLE_POLICY_VERSIONS, v1::D_TYPE_I32,
        BytesOf(versions));
  return request;
}

void AddSpan(v1::CorrectRequest* request, int64_t sequence, int64_t start,
             int64_t end, int64_t version) {
  v1::VersionSpan* const span = request->add_version_spans();
  span->set_sequence(sequence);
  span->set_start(start);
  span->set_end(end);
  span->set_policy_version(version);
}

std::vector<std::string> WrongFieldsOf(const v1::CorrectRequest& request) {
  std::vector<std::string> fields;
  for (const Violation& violation : Decode(request, {}, {}).violations) {
    fields.push_back(violation.field);
    EXPECT_FALSE(violation.description.empty());
  }
  return fields;
}

// Computes and encodes; *result is the kernels' result.
v1::CorrectResponse AnswerTo(const v1::CorrectRequest& request,
                             kernels::CorrectResult* result) {
  v1::CorrectResponse response;
  const Result<Decoded> valid = Decode(request, {}, {});
  EXPECT_THAT(valid.violations, IsEmpty());
  if (!valid.ok()) return response;
  const Decoded& decoded = valid.value;
  const kernels::Outputs outputs = AllocateOutputs(
      decoded.outputs, decoded.layout, PlaceInMessage, &response);
  const auto corrector = kernels::MakeCpuCorrector(1);
  *result = BeginCorrection(corrector.get(), decoded, BatchOf(decoded),
                            VersionsOf(decoded), outputs, {})
                ->Finish();
  if (result->status == kernels::CorrectStatus::kOk) {
    EXPECT_THAT(Encode(decoded, *result, &response), IsEmpty());
  }
  return response;
}

TEST(CodecVersions, TheAnswerHasAStalenessOnlyWhereVersionsCame) {
  kernels::CorrectResult result;
  const v1::CorrectResponse response =
      AnswerTo(WithTensor({7, 4, -1, 99}), &result);
  const v1::StalenessSummary& staleness = response.staleness();
  ASSERT_EQ(staleness.buckets_size(), 6);
  EXPECT_EQ(staleness.buckets(0).tokens(), 1);
  EXPECT_EQ(staleness.buckets(0).kl(), 0.0);
  EXPECT_EQ(staleness.buckets(3).first(), 3);
  EXPECT_EQ(staleness.buckets(3).last(), 4);
  EXPECT_EQ(staleness.buckets(3).tokens(), 1);
  EXPECT_EQ(staleness.buckets(3).kl(), -1.0);
  EXPECT_NEAR(staleness.buckets(3).k3(), std::exp(1.0) - 2.0, 1e-6);
  EXPECT_EQ(staleness.buckets(5).first(), 9);
  EXPECT_FALSE(staleness.buckets(5).has_last());
  EXPECT_TRUE(std::isnan(staleness.buckets(5).k3()));
  EXPECT_EQ(staleness.unknown_tokens(), 1);
  EXPECT_EQ(staleness.mean(), 1.5);
  EXPECT_EQ(staleness.max(), 3);
  EXPECT_FALSE(AnswerTo(WithoutVersions(), &result).has_staleness());
  v1::CorrectRequest omits = WithTensor({7, 4, -1, 99});
  omits.set_omit_metrics(true);
  EXPECT_FALSE(AnswerTo(omits, &result).has_staleness());
}

TEST(CodecVersions, DialectsHaveItBesideTheirOwnMetrics) {
  v1::CorrectRequest request = WithTensor({7, 4, -1, 99});
  v1::Dialect* const dialect = request.mutable_method()->mutable_dialect();
  dialect->set_system("verl");
  (*dialect->mutable_block()->mutable_fields())["rollout_is"].set_string_value(
      "token");
  kernels::CorrectResult result;
  const v1::CorrectResponse with = AnswerTo(request, &result);
  EXPECT_EQ(with.staleness().buckets(3).tokens(), 1);
  request.mutable_tensors()->RemoveLast();
  const v1::CorrectResponse without = AnswerTo(request, &result);
  EXPECT_FALSE(without.has_staleness());
  ASSERT_EQ(with.metrics_size(), without.metrics_size());
  for (const auto& [name, value] : without.metrics()) {
    EXPECT_TRUE(with.metrics().contains(name)) << name;
  }
}

TEST(CodecVersions, SpansGiveTheTensorsBytes) {
  v1::CorrectRequest spans = WithoutVersions();
  AddSpan(&spans, 0, 0, 1, 7);
  AddSpan(&spans, 0, 1, 2, 4);
  AddSpan(&spans, 1, 1, 2, 99);
  kernels::CorrectResult result;
  EXPECT_EQ(AnswerTo(spans, &result).staleness().SerializeAsString(),
            AnswerTo(WithTensor({7, 4, -1, 99}), &result)
                .staleness()
                .SerializeAsString());
}

TEST(CodecVersions, OneOfTheTwoIsEnoughAndThePolicyVersionIsNeeded) {
  v1::CorrectRequest request = WithTensor({7, 7, 7, 7});
  AddSpan(&request, 0, 0, 1, 7);
  request.mutable_labels()->clear_policy_version();
  EXPECT_THAT(WrongFieldsOf(request),
              UnorderedElementsAre("version_spans", "labels.policy_version"));
  request = WithTensor({7, 7, 7, 7});
  request.mutable_tensors(3)->set_dtype(v1::D_TYPE_F32);
  EXPECT_THAT(WrongFieldsOf(request), ElementsAre("tensors[3].dtype"));
  request = WithTensor({7, 7, 7});
  EXPECT_THAT(WrongFieldsOf(request), ElementsAre("tensors[3].data"));
}

TEST(CodecVersions, SpansAscendWithinTheirSequences) {
  const auto fields = [](auto... spans) {
    v1::CorrectRequest request = WithoutVersions();
    (std::apply([&](auto... n) { AddSpan(&request, n...); }, spans), ...);
    return WrongFieldsOf(request);
  };
  using Span = std::array<int64_t, 4>;
  EXPECT_THAT(fields(Span{0, 0, 1, 0}, Span{0, 1, 2, 0}, Span{1, 0, 2, 0}),
              IsEmpty());
  EXPECT_THAT(fields(Span{0, 0, 2, 0}, Span{0, 1, 2, 0}),
              ElementsAre("version_spans[1].start"));
  EXPECT_THAT(fields(Span{1, 0, 1, 0}, Span{0, 1, 2, 0}),
              ElementsAre("version_spans[1].start"));
  EXPECT_THAT(fields(Span{0, 0, 3, 0}), ElementsAre("version_spans[0].end"));
  EXPECT_THAT(fields(Span{0, 1, 1, 0}), ElementsAre("version_spans[0].end"));
  EXPECT_THAT(fields(Span{0, -1, 1, 0}),
              testing::Contains("version_spans[0].end"));
  EXPECT_THAT(fields(Span{2, 0, 1, 0}),
              ElementsAre("version_spans[0].sequence"));
  EXPECT_THAT(fields(Span{-1, 0, 1, 0}),
              testing::Contains("version_spans[0].sequence"));
  EXPECT_THAT(fields(Span{INT64_MAX, INT64_MIN, INT64_MAX, 0}),
              testing::Not(IsEmpty()));
  EXPECT_THAT(fields(Span{0, 0, 1, -1}),
              ElementsAre("version_spans[0].policy_version"));
}

TEST(CodecVersions, AVersionOutOfRangeIsNamedWithItsPlace) {
  kernels::CorrectResult result;
  AnswerTo(WithTensor({7, 8, 0, 0}), &result);
  ASSERT_EQ(result.status, kernels::CorrectStatus::kBadVersion);
  Violation violation = ToViolation(result.bad_version);
  EXPECT_EQ(violation.field, "tensors[POLICY_VERSIONS]");
  EXPECT_THAT(violation.description, HasSubstr("is 8 at sequence 0, token 1,"));
  EXPECT_THAT(violation.description, HasSubstr("is 7"));
  AnswerTo(WithTensor({7, 7, -2, 0}), &result);
  violation = ToViolation(result.bad_version);
  EXPECT_THAT(violation.description,
              HasSubstr("is -2 at sequence 1, token 0,"));
  v1::CorrectRequest spans = WithoutVersions();
  AddSpan(&spans, 1, 0, 2, 8);
  AnswerTo(spans, &result);
  EXPECT_EQ(ToViolation(result.bad_version).field, "version_spans");
}

}  // namespace
}  // namespace counterweight::server
