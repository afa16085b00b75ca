// Tensors that a method makes from those of the request, by themselves and in
// answers of prime_rl's ref_kl, where advantages are ref minus current.
#include "server/engine/derived_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "server/engine/codec_diagnosis.h"
#include "server/engine/corrected_tokens.h"
#include "server/engine/correction_run.h"
#include "tests/server/decoded_answers.h"
#include "tests/server/dialects/blocks.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/random_rows.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int kOwnRows = 6;
constexpr int kOwnLength = 8;
constexpr size_t kOwnTokens = kOwnRows * kOwnLength;

const kernels::CorrectionSpec kNoTurns;

DerivedTensors RefMinusCurrent() {
  return {.differences = {{.role = InputRole::kAdvantages,
                           .minuend = InputRole::kRef,
                           .subtrahend = InputRole::kCurrent}}};
}

std::vector<float> MadeOf(const kernels::Batch& batch) {
  const auto made = DeriveTensors(RefMinusCurrent(), kNoTurns, batch, {});
  EXPECT_TRUE(made);
  const auto* const data = static_cast<const float*>(
      made->batch.tensor(InputRole::kAdvantages).data);
  return {data, data + batch.offsets[batch.num_sequences]};
}

kernels::Row TwoTokens(const std::vector<float>& ref,
                       const std::vector<float>& current) {
  kernels::Row row;
  row.mask = {1, 1};
  for (auto& values : row.values) values = {-1.0f, -2.0f};
  row[InputRole::kRef] = ref;
  row[InputRole::kCurrent] = current;
  return row;
}

TEST(DerivedTensorsTest, ADifferenceIsOfTheTokensThatCount) {
  kernels::Row masked = TwoTokens({NAN, -4.0f}, {-1.0f, -1.5f});
  masked.mask = {0, 1};
  // The second number of the first row is 1 in float32 arithmetic of parts.
  const kernels::OwnedBatch owned(
      {TwoTokens({-1.0f, -0.1f}, {-3.0f, -0.3f}), kernels::Row(), masked});
  const kernels::Batch batch = owned.view();
  EXPECT_THAT(
      MadeOf(batch),
      ElementsAre(2.0f, static_cast<float>(double{-0.1f} - double{-0.3f}), 0.0f,
                  -2.5f));
  const auto made = DeriveTensors(RefMinusCurrent(), kNoTurns, batch, {});
  EXPECT_FALSE(made->non_finite);
  for (const InputRole role :
       {InputRole::kRollout, InputRole::kRef, InputRole::kCurrent}) {
    EXPECT_EQ(made->batch.tensor(role).data, batch.tensor(role).data);
  }
  EXPECT_EQ(made->batch.response_mask, batch.response_mask);
}

TEST(DerivedTensorsTest, TensorsOfHalvesAreRead) {
  const uint16_t ref[] = {0xbf80, 0xc000};      // bfloat16 -1, -2
  const uint16_t current[] = {0xb800, 0xb400};  // float16 -0.5, -0.25
  const uint8_t mask[] = {1, 1};
  const int64_t offsets[] = {0, 2};
  kernels::Batch batch;
  batch.num_sequences = 1;
  batch.offsets = offsets;
  batch.response_mask = mask;
  batch.tensors[static_cast<int>(InputRole::kRef)] = {ref,
                                                      kernels::DType::kBF16};
  batch.tensors[static_cast<int>(InputRole::kCurrent)] = {current,
                                                          kernels::DType::kF16};
  EXPECT_THAT(MadeOf(batch), ElementsAre(-0.5f, -1.75f));
}

struct Blamed {
  InputRole role;
  bool input;
};

// The second token of the second row has these numbers.
Blamed BlamedOf(float ref, float current) {
  const kernels::OwnedBatch owned({TwoTokens({-1.0f, -2.0f}, {-1.0f, -2.0f}),
                                   TwoTokens({-1.0f, ref}, {-1.0f, current}),
                                   TwoTokens({NAN, NAN}, {NAN, NAN})});
  const auto made =
      DeriveTensors(RefMinusCurrent(), kNoTurns, owned.view(), {});
  EXPECT_TRUE(made->non_finite);
  EXPECT_EQ(made->non_finite->sequence, 1);
  EXPECT_EQ(made->non_finite->token, 1);
  return {made->non_finite->role, made->non_finite->input};
}

TEST(DerivedTensorsTest, TheFirstNumberThatIsNotFiniteIsThatOfASource) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const Blamed ref = BlamedOf(NAN, -1.0f);
  EXPECT_EQ(ref.role, InputRole::kRef);
  EXPECT_TRUE(ref.input);
  const Blamed current = BlamedOf(-1.0f, -kInfinite);
  EXPECT_EQ(current.role, InputRole::kCurrent);
  EXPECT_TRUE(current.input);
  const Blamed both = BlamedOf(-kLargest, kLargest);
  EXPECT_EQ(both.role, InputRole::kRef);
  EXPECT_FALSE(both.input);
}

TEST(DerivedTensorsTest, RolesAndBytes) {
  const DerivedTensors derived = RefMinusCurrent();
  EXPECT_EQ(RolesOf(derived), 0b01000u);
  EXPECT_EQ(SourcesOf(derived), 0b10100u);
  EXPECT_EQ(DerivedBytes(derived, 10), 40);
  EXPECT_EQ(DerivedBytes({}, 10), 0);
}

TEST(DerivedTensorsTest, EndsOnceTheResultIsNotWanted) {
  const kernels::Row row = TwoTokens({-1.0f, -2.0f}, {-1.0f, -2.0f});
  const kernels::OwnedBatch owned({row, row});
  int calls = 0;
  EXPECT_FALSE(DeriveTensors(RefMinusCurrent(), kNoTurns, owned.view(),
                             [&] { return ++calls == 2; }));
  EXPECT_EQ(calls, 2);
}

// Rows of ref_kl's tensors, with masked tokens and an empty row.
struct RefKlBatch {
  RefKlBatch() {
    kernels::Random random(5);
    for (size_t i = 0; i < kOwnTokens; ++i) {
      const auto number = [&](double mean, double spread) {
        return static_cast<float>(mean + spread * random.Normal());
      };
      rollout.push_back(-std::fabs(number(0.0, 1.0)));
      current.push_back(rollout.back() + number(-0.1, 0.4));
      ref.push_back(current.back() + number(0.0, 0.5));
      mask.push_back(i % 5 == 3 || i / kOwnLength == 4 ? '\0' : '\1');
    }
  }

  v1::CorrectRequest Request(bool has_loss = true) const {
    v1::CorrectRequest request;
    request.mutable_layout()->mutable_padded()->set_num_sequences(kOwnRows);
    request.mutable_layout()->mutable_padded()->set_length(kOwnLength);
    AddNumbers(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, rollout, &request);
    AddNumbers(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, current, &request);
    AddNumbers(v1::TENSOR_ROLE_REF_LOG_PROBS, ref, &request);
    AddMask(mask, &request);
    v1::Dialect& dialect = *request.mutable_method()->mutable_dialect();
    dialect.set_system("prime_rl");
    *dialect.mutable_block() = Block(R"({"type": "ref_kl"})");
    request.add_outputs(v1::TENSOR_ROLE_WEIGHTS);
    request.add_outputs(v1::TENSOR_ROLE_KEEP_MASK);
    if (has_loss) request.add_outputs(v1::TENSOR_ROLE_GRADIENT);
    return request;
  }

  std::vector<float> Advantages() const {
    std::vector<float> advantages;
    for (size_t i = 0; i < kOwnTokens; ++i) {
      const double difference = double{ref[i]} - double{current[i]};
      advantages.push_back(mask[i] != 0 ? static_cast<float>(difference)
                                        : 0.0f);
    }
    return advantages;
  }

  std::vector<float> rollout, current, ref;
  std::string mask;
};

std::string TensorBytes(const v1::CorrectResponse& response) {
  std::string bytes;
  for (const v1::Tensor& tensor : response.tensors()) bytes += tensor.data();
  return bytes;
}

// The same spec with advantages that were sent.
void ExpectTheAnswerOfSentOnes(const RefKlBatch& batch,
                               v1::NonFinitePolicy policy) {
  v1::CorrectRequest request = batch.Request();
  request.set_non_finite_policy(policy);
  const Answer answer = AnswerOf(request);
  ASSERT_THAT(answer.fields(), IsEmpty());
  const Result<Decoded> decoded = Decode(request, {}, {});
  ASSERT_THAT(decoded.violations, IsEmpty());
  const std::vector<float> advantages = batch.Advantages();
  kernels::Batch sent = BatchOf(decoded.value);
  sent.tensors[static_cast<int>(InputRole::kAdvantages)] = {
      advantages.data(), kernels::DType::kF32};
  v1::CorrectResponse expected;
  const kernels::Outputs outputs = AllocateOutputs(
      decoded.value.outputs, decoded.value.layout, PlaceInMessage, &expected);
  const kernels::CorrectResult result = kernels::MakeCpuCorrector(1)->Correct(
      decoded.value.method.spec, sent, outputs);
  ASSERT_EQ(result.status, kernels::CorrectStatus::kOk);
  EXPECT_EQ(answer.response.loss(), result.sums.loss.total);
  EXPECT_NE(answer.response.loss(), 0.0);
  EXPECT_EQ(TensorBytes(answer.response), TensorBytes(expected));
  EXPECT_EQ(answer.response.non_finite_tokens(), result.sums.non_finite_tokens);
}

TEST(DerivedAdvantagesTest, TheAnswerIsThatOfSentOnes) {
  RefKlBatch batch;
  ExpectTheAnswerOfSentOnes(batch, v1::NON_FINITE_POLICY_REJECT);
  // A token of the policy's, as if its advantage had been sent.
  batch.ref[9] = NAN;
  batch.ref[17] = -std::numeric_limits<float>::infinity();
  for (const v1::NonFinitePolicy policy :
       {v1::NON_FINITE_POLICY_DROP, v1::NON_FINITE_POLICY_NEUTRALIZE}) {
    ExpectTheAnswerOfSentOnes(batch, policy);
  }
}

TEST(DerivedAdvantagesTest, SentOnesAreWarnedOfAndNotRead) {
  const RefKlBatch batch;
  for (const bool has_loss : {false, true}) {
    v1::CorrectRequest request = batch.Request(has_loss);
    const Answer without = AnswerOf(request);
    EXPECT_THAT(without.warnings, Not(Contains(HasSubstr("not read"))));
    AddNumbers(v1::TENSOR_ROLE_ADVANTAGES, std::vector<float>(kOwnTokens, NAN),
               &request);
    const Answer with = AnswerOf(request);
    ASSERT_THAT(with.fields(), IsEmpty());
    EXPECT_THAT(with.warnings,
                ElementsAre(HasSubstr("advantages was sent, but this method")));
    EXPECT_EQ(TensorBytes(with.response), TensorBytes(without.response));
    EXPECT_EQ(with.response.loss(), without.response.loss());
    EXPECT_EQ(with.response.metrics().at("ref_kl/mean"),
              without.response.metrics().at("ref_kl/mean"));
  }
}

// Also where metrics alone read it; a token that does not count is not looked
// at.
TEST(DerivedAdvantagesTest, AReferenceThatIsNotFiniteIsRefusedByItsName) {
  RefKlBatch batch;
  batch.ref[3] = NAN;
  EXPECT_THAT(AnswerOf(batch.Request()).fields(), IsEmpty());
  batch.ref[9] = NAN;
  for (const bool has_loss : {false, true}) {
    v1::CorrectRequest request = batch.Request(has_loss);
    const Answer answer = AnswerOf(request);
    EXPECT_THAT(answer.fields(), ElementsAre("tensors[REF_LOG_PROBS]"));
    EXPECT_THAT(answer.violations.begin()->description,
                HasSubstr("sequence 1, token 1"));
    // Nothing reads it then.
    request.set_omit_metrics(true);
    EXPECT_EQ(AnswerOf(request).fields().empty(), !has_loss);
  }
  batch.current[7] = NAN;
  EXPECT_THAT(AnswerOf(batch.Request()).fields(),
              ElementsAre("tensors[CURRENT_LOG_PROBS]"));
}

TEST(DerivedAdvantagesTest, WhatTheHostReadsIsInItsMemory) {
  const RefKlBatch batch;
  for (const bool has_loss : {false, true}) {
    const v1::CorrectRequest request = batch.Request(has_loss);
    v1::CorrectRequest without_data = request;
    std::vector<std::span<const std::byte>> inputs;
    for (int i = 0; i < request.tensors_size(); ++i) {
      inputs.push_back(std::as_bytes(std::span(request.tensors(i).data())));
      without_data.mutable_tensors(i)->clear_data();
    }
    const Result<Decoded> decoded =
        Decode(without_data, {}, {.memory = &inputs, .is_on_device = true});
    if (!has_loss) {
      EXPECT_THAT(decoded.violations, IsEmpty());
      EXPECT_FALSE(decoded.value.HasFirstPass());
      continue;
    }
    ASSERT_EQ(decoded.violations.size(), 1u);
    EXPECT_EQ(decoded.violations.begin()->field, "method");
    EXPECT_THAT(decoded.violations.begin()->description,
                HasSubstr("makes tensors before anything else"));
  }
}

// Sums of parts have no metrics that need the tokens, and without a loss
// nothing else reads the advantages.
TEST(DerivedAdvantagesTest, TheyAreMadeWhereTheyAreRead) {
  const auto derives = [](v1::CorrectRequest request, bool is_part) {
    request.set_partial_sums(is_part);
    const Result<Decoded> decoded = Decode(request, {}, {});
    EXPECT_THAT(decoded.violations, IsEmpty());
    return decoded.value.DerivesTensors();
  };
  const RefKlBatch batch;
  EXPECT_TRUE(derives(batch.Request(), false));
  EXPECT_TRUE(derives(batch.Request(), true));
  EXPECT_TRUE(derives(batch.Request(false), false));
  EXPECT_FALSE(derives(batch.Request(false), true));
}

TEST(DerivedAdvantagesTest, TheirMemoryIsCounted) {
  v1::CorrectRequest request = RefKlBatch().Request();
  request.set_omit_metrics(true);
  const Result<Decoded> decoded = Decode(request, {}, {});
  ASSERT_THAT(decoded.violations, IsEmpty());
  EXPECT_EQ(PassBytes(decoded.value),
            CorrectedTokens::ScratchBytes(kOwnLength) +
                static_cast<int64_t>(kOwnTokens * sizeof(float)));
}

TEST(DerivedAdvantagesTest, AnyLookAtTheStopEndsTheRun) {
  const v1::CorrectRequest request = RefKlBatch().Request();
  const Result<Decoded> decoded = Decode(request, {}, {});
  ASSERT_THAT(decoded.violations, IsEmpty());
  const auto corrector = kernels::MakeCpuCorrector(1);
  int looks = 0;
  const auto status_after = [&](int calls) {
    looks = 0;
    return BeginCorrection(corrector.get(), decoded.value,
                           BatchOf(decoded.value), VersionsOf(decoded.value),
                           {}, [&looks, calls] { return ++looks > calls; })
        ->Finish()
        .status;
  };
  ASSERT_EQ(status_after(1000), kernels::CorrectStatus::kOk);
  const int all = looks;
  EXPECT_GT(all, 2 * kOwnRows);  // of the tensor, and of the metrics
  for (int calls = 0; calls < all; ++calls) {
    EXPECT_EQ(status_after(calls), kernels::CorrectStatus::kStopped) << calls;
  }
}

TEST(DerivedAdvantagesTest, AShadowWithThemIsRefused) {
  v1::CorrectRequest request = RefKlBatch().Request();
  request.clear_outputs();
  *request.add_shadows() = request.method();
  request.clear_method();
  const Result<Patient> patient = DecodePatient(request, {}, {});
  ASSERT_EQ(patient.violations.size(), 1u);
  EXPECT_EQ(patient.violations.begin()->field, "shadows[0]");
  EXPECT_THAT(patient.violations.begin()->description,
              HasSubstr("makes tensors before anything else"));
}

}  // namespace
}  // namespace counterweight::server
