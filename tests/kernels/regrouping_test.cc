// The same rows in other batches: their bytes stay equal, and sums agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/testing/backends.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/reference.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using Regrouping = EveryBackend;

// Tolerance for sums of parts that were rounded.
constexpr double kReordered = 1e-12;

// Rows with log ratios of sizes from 1e-6 to 1e2, where order matters.
std::vector<Row> RowsOfAllSizes(uint64_t seed, int num_rows) {
  Random random(seed);
  std::vector<Row> rows;
  for (int i = 0; i < num_rows; ++i) {
    const double size = std::pow(10.0, random.Uniform(-6, 1.5));
    const int64_t length =
        random.Chance(0.1) ? 0
                           : random.Integer(1, random.Chance(0.1) ? 9000 : 300);
    rows.push_back(RandomRow(random, length, {.spread = size, .masked = 0.2}));
    for (std::vector<float>& values : rows.back().values)
      for (float& x : values) x = std::min(std::max(x, -100.0f), 100.0f);
  }
  return rows;
}

// One weight of each kind that does not couple rows.
std::vector<CorrectionSpec> Specs() {
  std::vector<CorrectionSpec> specs;
  for (Level level : {Level::kNone, Level::kToken, Level::kSequence,
                      Level::kGeometric, Level::kPrefix}) {
    CorrectionSpec spec = BusySpec();
    const WeightSpec none;
    spec.weight = level == Level::kNone ? none
                                        : WeightSpec{.level = level,
                                                     .token_clamp = 20,
                                                     .aggregate_clamp = 20,
                                                     .bound = Bound::kTruncate,
                                                     .upper = 2};
    if (level == Level::kNone) spec.rules[4].effect = Effect::kDrop;
    if (level == Level::kPrefix) spec.weight.after_rule = 2;
    if (level == Level::kGeometric) spec.evaluation = Evaluation::kSequential;
    specs.push_back(spec);
  }
  return specs;
}

TEST_P(Regrouping, PermutedRowsChangeNoByte) {
  const std::vector<Row> rows = RowsOfAllSizes(1, 60);
  Random random(2);
  std::vector<size_t> order(rows.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = order.size() - 1; i > 0; --i)
    std::swap(order[i], order[random.Integer(0, static_cast<int64_t>(i))]);
  std::vector<Row> permuted;
  for (size_t i : order) permuted.push_back(rows[i]);
  const OwnedBatch a(rows), b(permuted);
  for (const CorrectionSpec& spec : Specs()) {
    const Corrected x = Correct(spec, a), y = Correct(spec, b);
    for (size_t i = 0; i < order.size(); ++i) {
      const int64_t length = permuted[i].size();
      ASSERT_TRUE(
          SameOutputs(RowOutputs(x, a, static_cast<int64_t>(order[i]), length),
                      RowOutputs(y, b, static_cast<int64_t>(i), length)));
    }
    EXPECT_TRUE(SameSums(x.sums(), y.sums())) << ToString(spec);
  }
}

TEST_P(Regrouping, PartsOfABatchCombineToTheWhole) {
  const std::vector<Row> rows = RowsOfAllSizes(3, 60);
  for (const CorrectionSpec& spec : Specs()) {
    const OwnedBatch batch(rows);
    const Corrected whole = Correct(spec, batch);
    std::vector<BatchSums> parts;
    for (size_t begin = 0; begin < rows.size();) {
      const size_t end = std::min(rows.size(), begin + 1 + begin % 13);
      parts.push_back(
          Correct(spec, OwnedBatch({rows.begin() + begin, rows.begin() + end}))
              .sums());
      begin = end;
    }
    EXPECT_TRUE(CombinesTo(parts, whole.sums(),
                           Reference(spec, batch.view()).magnitudes,
                           kReordered))
        << ToString(spec);
  }
}

TEST_P(Regrouping, NeighboursChangeNoByteOfARow) {
  const std::vector<Row> rows = RowsOfAllSizes(4, 30);
  for (const CorrectionSpec& spec : Specs()) {
    const OwnedBatch together(rows);
    const Corrected all = Correct(spec, together);
    for (size_t i = 0; i < rows.size(); ++i) {
      const OwnedBatch alone({rows[i]});
      ASSERT_TRUE(SameOutputs(
          RowOutputs(all, together, static_cast<int64_t>(i), rows[i].size()),
          Correct(spec, alone)));
    }
  }
}

TEST_P(Regrouping, PaddedIsPacked) {
  const std::vector<Row> rows = RowsOfAllSizes(5, 20);
  const OwnedBatch packed(rows);
  for (int64_t padded_length : {9000, 9216, 20000}) {
    const OwnedBatch padded(rows,
                            {.padded_length = padded_length, .padding = NAN});
    for (const CorrectionSpec& spec : Specs()) {
      const Corrected a = Correct(spec, packed), b = Correct(spec, padded);
      EXPECT_TRUE(SameSums(a.sums(), b.sums(), "positions")) << ToString(spec);
      for (size_t i = 0; i < rows.size(); ++i)
        ASSERT_TRUE(SameOutputs(
            RowOutputs(a, packed, static_cast<int64_t>(i), rows[i].size()),
            RowOutputs(b, padded, static_cast<int64_t>(i), rows[i].size())));
    }
  }
}

TEST_P(Regrouping, PaddingIsZeroInEveryOutput) {
  const std::vector<Row> rows = RowsOfAllSizes(6, 5);
  const OwnedBatch padded(rows, {.padded_length = 9100, .padding = INFINITY});
  const Corrected corrected = Correct(BusySpec(), padded);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t begin = padded.view().offsets[i];
    for (int64_t t = rows[i].size(); t < 9100; ++t) {
      ASSERT_EQ(corrected.weights[begin + t], 0.0f);
      ASSERT_EQ(corrected.keep_mask[begin + t], 0);
      ASSERT_EQ(corrected.token_reasons[begin + t], 0);
    }
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(Regrouping);

}  // namespace
}  // namespace counterweight::kernels
