// Passes over the tokens of a corrected batch: what they see of numbers that
// are not finite, and that they end when the result is no longer wanted.
#include "server/engine/corrected_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/corrector.h"
#include "server/engine/correction_run.h"
#include "server/engine/row_filter.h"
#include "tests/server/decoded_answers.h"
#include "tests/testing/batch_builder.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;
using kernels::NonFinitePolicy;
using testing::ElementsAre;
using testing::IsEmpty;

// Token weights of old over rollout: nothing else is read.
kernels::CorrectionSpec TokenWeights(NonFinitePolicy policy) {
  kernels::CorrectionSpec spec;
  spec.weight.level = kernels::Level::kToken;
  spec.non_finite = policy;
  return spec;
}

std::vector<kernels::Row> TwoRows() {
  kernels::Row row;
  row.mask = {1, 1};
  for (auto& values : row.values) values = {-1.0f, -2.0f};
  return {row, row};
}

struct Seen {
  std::vector<uint8_t> mask;
  std::vector<double> old, ref;
};

Seen See(const std::vector<kernels::Row>& rows, NonFinitePolicy policy) {
  const kernels::OwnedBatch owned(rows);
  const kernels::Batch batch = owned.view();
  const std::vector<uint8_t> keep(4, 1);
  const std::vector<float> weights(4, 1.0f);
  Seen seen;
  const CorrectedTokens tokens(batch, TokenWeights(policy), keep.data(),
                               weights.data());
  tokens.ForEachRow([&](const RowTokens& row) {
    const auto old = row.of(InputRole::kOld), ref = row.of(InputRole::kRef);
    seen.mask.insert(seen.mask.end(), row.mask.begin(), row.mask.end());
    seen.old.insert(seen.old.end(), old.begin(), old.end());
    seen.ref.insert(seen.ref.end(), ref.begin(), ref.end());
  });
  EXPECT_FALSE(tokens.is_stopped());
  return seen;
}

TEST(CorrectedTokens, ANumberThatIsReadTakesItsTokenAlong) {
  std::vector<kernels::Row> rows = TwoRows();
  rows[1][InputRole::kRollout][0] = NAN;
  const Seen dropped = See(rows, NonFinitePolicy::kDrop);
  EXPECT_THAT(dropped.mask, ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(dropped.old, ElementsAre(-1, -2, 0, -2));
  const Seen neutral = See(rows, NonFinitePolicy::kNeutralize);
  EXPECT_THAT(neutral.mask, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(neutral.old, ElementsAre(-1, -2, 0, -2));
}

// The correction neither refuses nor drops for a tensor that it does not read.
TEST(CorrectedTokens, ANumberThatNothingReadsChangesNoOther) {
  std::vector<kernels::Row> rows = TwoRows();
  rows[1][InputRole::kRef][0] = NAN;
  for (const NonFinitePolicy policy :
       {NonFinitePolicy::kReject, NonFinitePolicy::kDrop}) {
    const Seen seen = See(rows, policy);
    EXPECT_THAT(seen.mask, ElementsAre(1, 1, 1, 1));
    EXPECT_THAT(seen.old, ElementsAre(-1, -2, -1, -2));
    EXPECT_TRUE(std::isnan(seen.ref[2]));
  }
}

// Before any other row too, when buffers have no memory yet.
TEST(CorrectedTokens, ARowMayBeEmpty) {
  std::vector<kernels::Row> rows = TwoRows();
  rows.insert(rows.begin(), kernels::Row());
  const Seen seen = See(rows, NonFinitePolicy::kDrop);
  EXPECT_THAT(seen.old, ElementsAre(-1, -2, -1, -2));
}

TEST(RowFilter, ARowMayBeEmpty) {
  std::vector<kernels::Row> rows = TwoRows();
  rows.insert(rows.begin(), kernels::Row());
  const kernels::OwnedBatch owned(rows);
  std::vector<uint8_t> mask(4);
  EXPECT_TRUE(
      FilterRows({}, owned.view(), NonFinitePolicy::kDrop, {}, mask.data()));
  EXPECT_THAT(mask, ElementsAre(1, 1, 1, 1));
}

TEST(CorrectedTokens, NoRowIsReadOnceTheResultIsNotWanted) {
  const kernels::OwnedBatch owned(TwoRows());
  const kernels::Batch batch = owned.view();
  const std::vector<uint8_t> keep(4, 1);
  const std::vector<float> weights(4, 1.0f);
  int rows = 0;
  const CorrectedTokens tokens(batch, TokenWeights(NonFinitePolicy::kDrop),
                               keep.data(), weights.data(),
                               [&] { return rows == 1; });
  tokens.ForEachRow([&](const RowTokens&) { ++rows; });
  EXPECT_EQ(rows, 1);
  EXPECT_TRUE(tokens.is_stopped());
}

TEST(RowFilter, EndsOnceTheResultIsNotWanted) {
  const kernels::OwnedBatch owned(TwoRows());
  std::vector<uint8_t> mask(4);
  int calls = 0;
  EXPECT_FALSE(FilterRows(
      {}, owned.view(), NonFinitePolicy::kDrop, [&] { return ++calls == 2; },
      mask.data()));
  EXPECT_EQ(calls, 2);
}

v1::CorrectRequest NemoRl(const std::string& threshold) {
  v1::CorrectRequest request;
  request.mutable_layout()->mutable_padded()->set_num_sequences(2);
  request.mutable_layout()->mutable_padded()->set_length(2);
  AddNumbers(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, {-1, -2, -3, -4}, &request);
  AddNumbers(v1::TENSOR_ROLE_OLD_LOG_PROBS, {-1, -2, -3, -5}, &request);
  AddMask(std::string(4, '\1'), &request);
  v1::Dialect& dialect = *request.mutable_method()->mutable_dialect();
  dialect.set_system("nemo_rl");
  auto& fields = *dialect.mutable_block()->mutable_fields();
  fields["use_importance_sampling_correction"].set_bool_value(true);
  if (!threshold.empty()) {
    fields["seq_logprob_error_threshold"].set_number_value(
        std::stod(threshold));
  }
  return request;
}

v1::Method WeightsOf(v1::Level level) {
  v1::Method method;
  v1::ImportanceWeight& weight =
      *method.mutable_config()->mutable_importance_weight();
  weight.set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
  weight.set_level(level);
  weight.set_bound(v1::BOUND_NONE);
  return method;
}

// A row's buffers once, and of each position what is kept for the whole batch.
TEST(TokenMetricsRun, ItsMemoryIsCounted) {
  const auto bytes = [](const v1::CorrectRequest& request) {
    const Result<Decoded> decoded = Decode(request, {}, {});
    EXPECT_THAT(decoded.violations, IsEmpty());
    return PassBytes(decoded.value);
  };
  const int64_t of_row = CorrectedTokens::ScratchBytes(2);
  EXPECT_GE(of_row, 2 * 8 * 6);
  EXPECT_EQ(bytes(NemoRl("")), of_row + 4 * (4 + 1));
  EXPECT_EQ(bytes(NemoRl("1.5")), of_row + 4 * (4 + 1 + 1));
  v1::CorrectRequest request = NemoRl("");
  // One mean over turns, and zeros.
  *request.mutable_method() = WeightsOf(v1::LEVEL_TURN);
  EXPECT_EQ(bytes(request), of_row + 4 * 2 * int64_t{sizeof(float)});
  request = NemoRl("");
  request.set_omit_metrics(true);
  EXPECT_EQ(bytes(request), 0);
  request = NemoRl("");
  request.set_partial_sums(true);
  EXPECT_EQ(bytes(request), 0);
}

// Runs until the stop was looked at `calls` times; *looks gets how often it
// was.
kernels::CorrectStatus StatusAfter(const v1::CorrectRequest& request, int calls,
                                   int* looks) {
  const Result<Decoded> decoded = Decode(request, {}, {});
  EXPECT_THAT(decoded.violations, IsEmpty());
  if (!decoded.ok()) return kernels::CorrectStatus::kDeviceError;
  *looks = 0;
  const auto corrector = kernels::MakeCpuCorrector(1);
  return BeginCorrection(corrector.get(), decoded.value, BatchOf(decoded.value),
                         VersionsOf(decoded.value), {},
                         [=] { return ++*looks > calls; })
      ->Finish()
      .status;
}

// The pass over tokens, the filter and what they surround: each look at the
// stop ends the run, the last ones too.
TEST(TokenMetricsRun, AnyLookAtTheStopEndsIt) {
  int without_metrics = 0, plain = 0;
  v1::CorrectRequest request = NemoRl("");
  request.set_omit_metrics(true);
  StatusAfter(request, 1000, &without_metrics);
  StatusAfter(NemoRl(""), 1000, &plain);
  EXPECT_EQ(plain, without_metrics + 2);  // rows
  for (const std::string threshold : {"", "1.5"}) {
    int looks = 0, ignored = 0;
    ASSERT_EQ(StatusAfter(NemoRl(threshold), 1000, &looks),
              kernels::CorrectStatus::kOk);
    EXPECT_EQ(looks, plain + (threshold.empty() ? 0 : 2));
    for (int calls = 0; calls < looks; ++calls) {
      EXPECT_EQ(StatusAfter(NemoRl(threshold), calls, &ignored),
                kernels::CorrectStatus::kStopped)
          << calls << " of " << looks;
    }
  }
}

TEST(TurnMeansRun, AnyLookAtTheStopEndsIt) {
  v1::CorrectRequest request = NemoRl("");
  *request.mutable_method() = WeightsOf(v1::LEVEL_TURN);
  int looks = 0, ignored = 0, of_tokens = 0;
  ASSERT_EQ(StatusAfter(request, 1000, &looks), kernels::CorrectStatus::kOk);
  v1::CorrectRequest token = request;
  *token.mutable_method() = WeightsOf(v1::LEVEL_TOKEN);
  StatusAfter(token, 1000, &of_tokens);
  EXPECT_EQ(looks, of_tokens + 2);  // rows
  for (int calls = 0; calls < looks; ++calls) {
    EXPECT_EQ(StatusAfter(request, calls, &ignored),
              kernels::CorrectStatus::kStopped)
        << calls << " of " << looks;
  }
}

}  // namespace
}  // namespace counterweight::server
