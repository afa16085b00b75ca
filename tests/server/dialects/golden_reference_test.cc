// The goldens through the float64 reference of tests/testing instead of
// kernels/: a difference here is one of the translation or the metrics; a
// difference only in tests/server/golden_test.cc is one of kernels/ or the
// codec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/dialect.h"
#include "tests/server/dialects/golden.h"
#include "tests/server/dialects/token_metrics.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/reference.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;

class GoldenReferenceTest : public testing::TestWithParam<Golden> {};

std::vector<float> RowValues(const GoldenTensor<float>& tensor, int64_t row,
                             int64_t length) {
  if (!tensor) return {};
  const auto begin = tensor->begin() + row * length;
  return {begin, begin + length};
}

std::vector<kernels::Row> RowsOf(const Golden& golden) {
  std::vector<kernels::Row> rows(static_cast<size_t>(golden.num_sequences));
  for (int64_t i = 0; i < golden.num_sequences; ++i) {
    kernels::Row& row = rows[static_cast<size_t>(i)];
    const auto begin = golden.response_mask.begin() + i * golden.length;
    row.mask = {begin, begin + golden.length};
    const auto fill = [&](InputRole role, const GoldenTensor<float>& tensor) {
      row[role] = RowValues(tensor, i, golden.length);
    };
    fill(InputRole::kRollout, golden.rollout_log_probs);
    fill(InputRole::kOld, golden.old_log_probs);
    fill(InputRole::kCurrent, golden.current_log_probs);
    fill(InputRole::kRef, golden.ref_log_probs);
    fill(InputRole::kAdvantages, golden.advantages);
  }
  return rows;
}

// Masks the rows that the filter drops; returns its metrics.
MetricMap Filter(const RowFilter& filter, std::vector<kernels::Row>* rows) {
  const kernels::OwnedBatch whole(*rows);
  const kernels::Batch batch = whole.view();
  std::vector<uint8_t> mask(
      static_cast<size_t>(batch.offsets[batch.num_sequences]));
  MetricMap metrics;
  filter.report(*FilterRows(filter, batch, kernels::NonFinitePolicy::kReject,
                            {}, mask.data()),
                &metrics);
  for (size_t i = 0; i < rows->size(); ++i) {
    const auto begin = mask.begin() + batch.offsets[i];
    (*rows)[i].mask = {begin, mask.begin() + batch.offsets[i + 1]};
  }
  return metrics;
}

// Adds the tensors of the method's own to the rows.
void MakeDerived(const DerivedTensors& derived,
                 std::vector<kernels::Row>* rows) {
  for (kernels::Row& row : *rows) {
    for (const TensorDifference& each : derived.differences) {
      for (size_t i = 0; i < row.mask.size(); ++i) {
        row[each.role].push_back(
            row.mask[i] == 0 ? 0.0f
                             : row[each.minuend][i] - row[each.subtrahend][i]);
      }
    }
  }
}

// Adds violations found only here to *translation.
GoldenAnswer Compute(const Golden& golden, Translation* translation) {
  std::vector<kernels::Row> rows = RowsOf(golden);
  MetricMap of_filter;
  if (translation->row_filter) {
    of_filter = Filter(*translation->row_filter, &rows);
  }
  MakeDerived(translation->derived, &rows);
  kernels::OwnedBatch batch(rows);
  if (!translation->groups.empty()) {
    batch.SetGroups(translation->groups, translation->num_groups);
  }
  if (!translation->row_divisors.empty()) {
    batch.SetRowDivisors(translation->row_divisors);
  }
  kernels::ReferenceResult result =
      kernels::Reference(translation->spec, batch.view());
  if (translation->last_rule_spares_weights) {
    kernels::CorrectionSpec spec = translation->spec;
    spec.rules[--spec.num_rules] = {};
    spec.loss = {};
    result.weights = kernels::Reference(spec, batch.view()).weights;
  }
  GoldenAnswer answer;
  translation->report(result.sums, &answer.metrics, &translation->violations);
  answer.metrics.merge(TokenMetricsOf(*translation, batch.view(), result));
  answer.metrics.merge(of_filter);
  answer.keep_mask = std::move(result.keep_mask);
  if (translation->spec.weight.level != kernels::Level::kNone) {
    answer.weights = std::move(result.weights);
  }
  if (AsksForLoss(golden)) {
    const kernels::LossSums& loss = result.sums.loss;
    answer.loss = translation->empty_loss_is_nan && loss.count == 0.0
                      ? std::numeric_limits<double>::quiet_NaN()
                      : loss.total;
    answer.gradient = std::move(result.gradient);
  }
  return answer;
}

TEST_P(GoldenReferenceTest, MatchesOriginal) {
  const Golden& golden = GetParam();
  const Dialect* dialect = FindDialect(golden.dialect);
  ASSERT_NE(dialect, nullptr);
  Translation translation =
      dialect->translate(golden.block, false, FactsOf(golden));
  GoldenAnswer answer;
  if (translation.violations.empty()) answer = Compute(golden, &translation);
  if (golden.error) {
    EXPECT_TRUE(Blames(translation.violations, golden))
        << *golden.error << "\nblames " << testing::PrintToString(golden.blamed)
        << "; found " << translation.violations.size() << " violations";
    return;
  }
  for (const Violation& violation : translation.violations) {
    ADD_FAILURE() << violation.field << ": " << violation.description;
  }
  EXPECT_THAT(Differences(golden, answer), testing::IsEmpty());
}

std::string NameOf(const testing::TestParamInfo<Golden>& parameter) {
  return parameter.param.name;
}

INSTANTIATE_TEST_SUITE_P(Areal, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("areal")), NameOf);
INSTANTIATE_TEST_SUITE_P(DatedOpenrlhf, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("dated/openrlhf")),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(DatedTrl, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("dated/trl")), NameOf);
INSTANTIATE_TEST_SUITE_P(DatedVerl, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("dated/verl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Miles, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("miles")), NameOf);
INSTANTIATE_TEST_SUITE_P(MsSwift, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("ms_swift")), NameOf);
INSTANTIATE_TEST_SUITE_P(NemoRl, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("nemo_rl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Openrlhf, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("openrlhf")), NameOf);
INSTANTIATE_TEST_SUITE_P(PrimeRl, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("prime_rl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Roll, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("roll")), NameOf);
INSTANTIATE_TEST_SUITE_P(Skyrl, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("skyrl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Slime, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("slime")), NameOf);
INSTANTIATE_TEST_SUITE_P(Tinker, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("tinker")), NameOf);
INSTANTIATE_TEST_SUITE_P(Trl, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("trl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Verl, GoldenReferenceTest,
                         testing::ValuesIn(ReadGoldens("verl")), NameOf);

}  // namespace
}  // namespace counterweight::server
