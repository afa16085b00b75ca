// verl's goldens through the float64 reference of tests/testing instead of
// kernels/: what differs here is the translation or the metrics, what differs
// only in tests/server/golden_test.cc is kernels/ or the codec.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "server/dialects/dialect.h"
#include "tests/server/dialects/golden.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/reference.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;

class VerlGoldenTest : public testing::TestWithParam<Golden> {};

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
    row[InputRole::kRollout] =
        RowValues(golden.rollout_log_probs, i, golden.length);
    row[InputRole::kOld] = RowValues(golden.old_log_probs, i, golden.length);
    row[InputRole::kCurrent] =
        RowValues(golden.current_log_probs, i, golden.length);
  }
  return rows;
}

TEST_P(VerlGoldenTest, MatchesOriginal) {
  const Golden& golden = GetParam();
  const Dialect* dialect = FindDialect(golden.dialect);
  ASSERT_NE(dialect, nullptr);
  Translation translation =
      dialect->translate(golden.block, false, FactsOf(golden));

  MetricMap metrics;
  kernels::ReferenceResult result;
  if (translation.violations.empty()) {
    const kernels::OwnedBatch batch(RowsOf(golden));
    result = kernels::Reference(translation.spec, batch.view());
    translation.report(result.sums, &metrics, &translation.violations);
  }
  if (golden.error) {
    EXPECT_TRUE(Blames(translation.violations, golden))
        << *golden.error << "\nblames " << BlamedField(golden) << "; found "
        << translation.violations.size() << " violations";
    return;
  }
  for (const Violation& violation : translation.violations) {
    ADD_FAILURE() << violation.field << ": " << violation.description;
  }
  EXPECT_THAT(
      Differences(golden, translation.has_weights ? &result.weights : nullptr,
                  result.keep_mask, metrics),
      testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Verl, VerlGoldenTest,
                         testing::ValuesIn(ReadGoldens("verl")),
                         [](const testing::TestParamInfo<Golden>& parameter) {
                           return parameter.param.name;
                         });

}  // namespace
}  // namespace counterweight::server
