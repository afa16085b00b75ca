// Half types upcast exactly; tensors may start at any address.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/backends.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/reference_inputs.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using InputBytes = EveryBackend;

// Every finite number of a half type, in rows of 1000.
std::vector<Row> EveryNumber(DType dtype) {
  std::vector<Row> rows;
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const auto value = static_cast<float>(DecodeElement({&pattern, dtype}, 0));
    if (!std::isfinite(value)) continue;
    if (rows.empty() || rows.back().size() == 1000) rows.push_back(RowOf({}));
    rows.back().mask.push_back(1);
    rows.back()[InputRole::kRollout].push_back(0.0f);
    rows.back()[InputRole::kOld].push_back(value);
  }
  return rows;
}

TEST_P(InputBytes, HalfTypesGiveTheBytesOfTheirUpcast) {
  CorrectionSpec spec = WithWeightAndRules(
      {.level = Level::kToken}, {{.aggregation = Aggregation::kSum, .upper = 1},
                                 {.estimator = Estimator::kK2, .upper = 1e-9}});
  spec.non_finite = NonFinitePolicy::kDrop;
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const std::vector<Row> rows = EveryNumber(dtype);
    const Corrected half = Correct(spec, OwnedBatch(rows, {.dtype = dtype}));
    const Corrected full = Correct(spec, OwnedBatch(rows));
    EXPECT_TRUE(SameOutputs(half, full));
    EXPECT_TRUE(SameSums(half.sums(), full.sums()));
  }
}

TEST_P(InputBytes, DenormalsAreNumbers) {
  // The smallest of each type, doubled to be a log ratio of two of them.
  const std::pair<DType, double> smallest[] = {{DType::kF32, 0x1p-149},
                                               {DType::kBF16, 0x1p-133},
                                               {DType::kF16, 0x1p-24}};
  for (const auto& [dtype, x] : smallest) {
    Row row = RowOf({static_cast<float>(x)});
    row[InputRole::kRollout] = {static_cast<float>(-x)};
    const Corrected corrected =
        Correct(WithRules({{.upper = 0}}), OwnedBatch({row}, {.dtype = dtype}));
    EXPECT_EQ(corrected.sums().drift.log_ratio, 2 * x);
    EXPECT_EQ(corrected.sums().drift.log_ratio_range.max, 2 * x);
    EXPECT_EQ(corrected.keep_mask[0], 0) << "above 0";
  }
}

TEST_P(InputBytes, NonFiniteHalvesAreRefused) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      Row row = RowOf(std::vector<float>(50, 0.25f));
      row[InputRole::kOld][40] = bad;
      const CorrectResult result =
          Correct({}, OwnedBatch({row}, {.dtype = dtype})).result;
      ASSERT_EQ(result.status, CorrectStatus::kNonFinite);
      EXPECT_EQ(result.non_finite.token, 40);
    }
  }
}

TEST_P(InputBytes, AddressesNeedNoAlignment) {
  Random random(3);
  const std::vector<Row> rows = RandomRows(random, {1, 70, 5000, 255});
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Corrected aligned =
        Correct(BusySpec(), OwnedBatch(rows, {.dtype = dtype}));
    for (int misalignment : {1, 2, 3}) {
      const Corrected other = Correct(
          BusySpec(),
          OwnedBatch(rows, {.dtype = dtype, .misalignment = misalignment}));
      EXPECT_TRUE(SameOutputs(aligned, other)) << misalignment;
      EXPECT_TRUE(SameSums(aligned.sums(), other.sums())) << misalignment;
    }
  }
}

TEST_P(InputBytes, TypesMayBeMixed) {
  Random random(4);
  const std::vector<Row> rows = RandomRows(random, {300, 4100});
  const OwnedBatch half(rows, {.dtype = DType::kBF16}), full(rows);
  // The numbers of `half`, in float32.
  std::vector<Row> rounded = rows;
  int64_t position = 0;
  for (Row& row : rounded)
    for (float& x : row[InputRole::kRollout])
      x = static_cast<float>(
          DecodeElement(half.view().tensor(InputRole::kRollout), position++));
  Batch mixed = full.view();
  mixed.tensors[static_cast<int>(InputRole::kRollout)] =
      half.view().tensor(InputRole::kRollout);
  const BatchSums sums = corrector_->Correct(BusySpec(), mixed, {}).sums;
  EXPECT_TRUE(SameSums(sums, Correct(BusySpec(), OwnedBatch(rounded)).sums()));
}

COUNTERWEIGHT_ON_EVERY_BACKEND(InputBytes);

}  // namespace
}  // namespace counterweight::kernels
