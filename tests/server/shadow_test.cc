// Diagnose with methods that are described, not applied.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "server/engine/codec_diagnosis.h"
#include "tests/server/decoded_answers.h"

namespace counterweight::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kShadowRows = 5;
constexpr int kShadowLength = 7;
constexpr int kShadowTokens = kShadowRows * kShadowLength;

// Token i has the log ratio i / 10 - 1.5 of old over rollout, and the advantage
// 1 - i / 5; the third of four does not count.
struct ShadowBatch {
  ShadowBatch() {
    for (int i = 0; i < kShadowTokens; ++i) {
      const float ratio = static_cast<float>(i) / 10.0F - 1.5F;
      rollout.push_back(-4.0F);
      old.push_back(-4.0F + ratio);
      advantages.push_back(1.0F - static_cast<float>(i) / 5.0F);
      mask.push_back(i % 4 == 2 ? '\0' : '\1');
    }
  }

  v1::CorrectRequest Request() const {
    v1::CorrectRequest request;
    v1::PaddedLayout* const layout = request.mutable_layout()->mutable_padded();
    layout->set_num_sequences(kShadowRows);
    layout->set_length(kShadowLength);
    AddNumbers(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, rollout, &request);
    AddNumbers(v1::TENSOR_ROLE_OLD_LOG_PROBS, old, &request);
    AddNumbers(v1::TENSOR_ROLE_ADVANTAGES, advantages, &request);
    AddMask(mask, &request);
    return request;
  }

  std::vector<float> rollout, old, advantages;
  std::string mask;
};

v1::Method NamedMethod(const std::string& name) {
  v1::Method method;
  method.mutable_preset()->set_name(name);
  return method;
}

v1::DiagnoseResponse Described(const v1::CorrectRequest& request) {
  v1::DiagnoseResponse response;
  const Result<Patient> patient = DecodePatient(request, {}, {});
  EXPECT_TRUE(patient.ok()) << patient.violations.begin()->field;
  EXPECT_TRUE(Diagnose(patient.value, {}, &response).empty());
  return response;
}

std::vector<Violation> Refusals(const v1::CorrectRequest& request) {
  const Result<Patient> patient = DecodePatient(request, {}, {});
  return {patient.violations.begin(), patient.violations.end()};
}

TEST(ShadowTest, SumsAreThoseOfTheFormulas) {
  const ShadowBatch batch;
  v1::CorrectRequest request = batch.Request();
  *request.add_shadows() = NamedMethod("token_tis");
  const v1::DiagnoseResponse answer = Described(request);
  double distance = 0.0, exact = 0.0, exact_squared = 0.0, squared = 0.0;
  double product = 0.0;
  int tokens = 0;
  for (size_t i = 0; i < kShadowTokens; ++i) {
    if (batch.mask[i] == 0) continue;
    const double a = std::abs(static_cast<double>(batch.advantages[i]));
    const double r = std::exp(static_cast<double>(batch.old[i]) -
                              static_cast<double>(batch.rollout[i]));
    const double w = std::min(r, 2.0);
    ++tokens;
    distance += a * (r - w);
    exact += a * r;
    exact_squared += a * r * a * r;
    squared += a * w * a * w;
    product += a * w * a * r;
  }
  ASSERT_EQ(answer.shadows_size(), 1);
  const v1::Shadow& shadow = answer.shadows(0);
  EXPECT_EQ(shadow.method(), "token_tis");
  EXPECT_EQ(shadow.tokens(), tokens);
  EXPECT_EQ(shadow.kept_token_fraction(), 1.0);
  EXPECT_NEAR(shadow.bias(), distance / exact, 1e-6);
  EXPECT_NEAR(shadow.norm_ratio(), std::sqrt(squared / exact_squared), 1e-6);
  EXPECT_NEAR(shadow.cosine(), product / std::sqrt(squared * exact_squared),
              1e-6);
}

// The numbers of a method are those of its own call.
TEST(ShadowTest, SizesAreThoseOfACall) {
  const ShadowBatch batch;
  v1::CorrectRequest request = batch.Request();
  const std::vector<std::string> names = {"seq_tis", "geo_rs_token_tis",
                                          "icepop", "none"};
  for (const std::string& name : names)
    *request.add_shadows() = NamedMethod(name);
  const v1::DiagnoseResponse answer = Described(request);
  ASSERT_EQ(answer.shadows_size(), 4);
  for (int i = 0; i < answer.shadows_size(); ++i) {
    SCOPED_TRACE(names[static_cast<size_t>(i)]);
    v1::CorrectRequest one = batch.Request();
    *one.mutable_method() = request.shadows(i);
    const Answer corrected = AnswerOf(one);
    const auto& metrics = corrected.response.metrics();
    const v1::Shadow& shadow = answer.shadows(i);
    EXPECT_EQ(shadow.method(), names[static_cast<size_t>(i)]);
    EXPECT_EQ(shadow.kept_token_fraction(), metrics.at("kept_token_fraction"));
    ASSERT_EQ(shadow.has_effective_sample_size(), i < 3);
    if (i == 3) continue;
    EXPECT_EQ(shadow.effective_sample_size(),
              metrics.at("effective_sample_size"));
    EXPECT_EQ(shadow.kept_effective_sample_size(),
              metrics.at("kept_effective_sample_size"));
  }
  // Not corrected, the gradient is that of weights 1.
  EXPECT_LT(answer.shadows(3).cosine(), 1.0);
  EXPECT_GT(answer.shadows(3).bias(), 0.0);
}

TEST(ShadowTest, TokensWithoutFiniteNumbersAreLeftOut) {
  ShadowBatch batch;
  v1::CorrectRequest request = batch.Request();
  *request.add_shadows() = NamedMethod("token_tis");
  const v1::Shadow whole = Described(request).shadows(0);
  batch.old[0] = std::nanf("");
  batch.advantages[1] = INFINITY;
  request = batch.Request();
  *request.add_shadows() = NamedMethod("token_tis");
  const v1::Shadow shadow = Described(request).shadows(0);
  EXPECT_EQ(shadow.tokens(), whole.tokens() - 1);
  EXPECT_TRUE(std::isfinite(shadow.bias()));
  batch.mask.assign(kShadowTokens, '\0');
  request = batch.Request();
  *request.add_shadows() = NamedMethod("token_tis");
  const v1::Shadow none = Described(request).shadows(0);
  EXPECT_EQ(none.tokens(), 0);
  EXPECT_TRUE(std::isnan(none.bias()));
  EXPECT_TRUE(std::isnan(none.cosine()));
}

TEST(ShadowTest, RefusalsNameTheShadow) {
  const ShadowBatch batch;
  const auto refused = [&](auto change) {
    v1::CorrectRequest request = batch.Request();
    *request.add_shadows() = NamedMethod("token_tis");
    change(&request);
    const std::vector<Violation> found = Refusals(request);
    return found.empty() ? Violation{"", ""} : found[0];
  };
  EXPECT_EQ(refused([](auto* request) {
              *request->add_shadows() = NamedMethod("token_tiss");
            }).field,
            "shadows[1].preset.name");
  const Violation needs = refused([](auto* request) {
    *request->add_shadows() = NamedMethod("bypass_token_tis_reinforce");
  });
  EXPECT_EQ(needs.field, "shadows[1]");
  EXPECT_THAT(needs.description, HasSubstr("current_log_probs"));
  EXPECT_EQ(refused([](auto* request) {
              for (int i = 0; i < 4; ++i) {
                *request->add_shadows() = NamedMethod("none");
              }
            }).description,
            "has 5 methods; at most 4");
  EXPECT_EQ(refused([](auto* request) { request->add_shadows(); }).field,
            "shadows[1]");
  EXPECT_THAT(refused([](auto* request) {
                request->mutable_audit()->add_rows(0);
              }).description,
              HasSubstr("audit.rows"));
  v1::CorrectRequest request = batch.Request();
  *request.mutable_method() = NamedMethod("token_tis");
  *request.add_shadows() = NamedMethod("none");
  EXPECT_THAT(AnswerOf(request).fields(), ElementsAre("shadows"));
}

TEST(ShadowTest, MemoryIsThatOfPositionsAndRows) {
  v1::CorrectRequest request = ShadowBatch().Request();
  const auto bytes = [&] {
    const Result<Patient> patient = DecodePatient(request, {}, {});
    return ExaminationBytes(patient.value);
  };
  const int64_t without = bytes();
  *request.add_shadows() = NamedMethod("token_tis");
  EXPECT_EQ(bytes() - without, 10 * kShadowTokens + 16 * kShadowRows);
  *request.add_shadows() = NamedMethod("none");
  EXPECT_EQ(bytes() - without, 10 * kShadowTokens + 2 * 16 * kShadowRows);
}

TEST(ShadowTest, AStopLeavesThemOut) {
  v1::CorrectRequest request = ShadowBatch().Request();
  *request.add_shadows() = NamedMethod("token_tis");
  const Result<Patient> patient = DecodePatient(request, {}, {});
  v1::DiagnoseResponse response;
  EXPECT_TRUE(Diagnose(
                  patient.value, [] { return true; }, &response)
                  .empty());
  EXPECT_EQ(response.shadows_size(), 0);
}

}  // namespace
}  // namespace counterweight::server
