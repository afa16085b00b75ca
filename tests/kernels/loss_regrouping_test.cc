// The same rows in other batches: their gradients stay equal, and totals agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/reference.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using LossRegrouping = EveryBackend;

// Tolerance for float64 sums in another order.
constexpr double kReordered = 1e-12;

// Rows with log ratios and advantages of sizes from 1e-6 to 1e2, where order
// matters.
std::vector<Row> RowsOfAllSizes(uint64_t seed, int num_rows) {
  Random random(seed);
  std::vector<Row> rows;
  for (int i = 0; i < num_rows; ++i) {
    const double size = std::pow(10.0, random.Uniform(-6, 0.5));
    const int64_t length =
        random.Chance(0.1) ? 0
                           : random.Integer(1, random.Chance(0.1) ? 9000 : 300);
    rows.push_back(RandomRow(random, length, {.spread = size, .masked = 0.2}));
    const double scale = std::pow(10.0, random.Uniform(-6, 2));
    for (float& a : rows.back()[InputRole::kAdvantages])
      a = static_cast<float>(a * scale);
    for (std::vector<float>& values : rows.back().values)
      for (float& x : values) x = std::clamp(x, -100.0f, 100.0f);
  }
  return rows;
}

// Every surrogate that selects no tokens from the batch, at each of its levels,
// with weights, rules and a penalty. Their factors depend on one row only,
// except for the counts `batch_tokens` and `batch_rows`, which the caller
// passes.
std::vector<CorrectionSpec> Specs(double batch_tokens, double batch_rows) {
  std::vector<CorrectionSpec> specs;
  for (Surrogate surrogate : Surrogates()) {
    if (HasTrait(surrogate, kTraitSelection)) continue;
    for (LossLevel level :
         {LossLevel::kToken, LossLevel::kSequence, LossLevel::kSequenceToken}) {
      CorrectionSpec spec = BusySpec();
      LossSpec& loss = spec.loss;
      loss = BusyLoss(surrogate, 0.3);
      loss.level = level;
      loss.kl = {.estimator = KlEstimator::kK2, .coefficient = 0.1};
      loss.kl.reduction = {.count = BatchCount::kOne,
                           .row = RowCount::kTokens,
                           .scale = 1 / batch_rows};
      loss.reduction = {.count = BatchCount::kOne, .scale = 1 / batch_tokens};
      if (level == LossLevel::kSequence) loss.reduction = loss.kl.reduction;
      loss.allow_double_correction = true;
      if (Validate(spec).empty()) specs.push_back(spec);
      // The caller passes the mean over all ranks.
      spec.weight.normalize = true;
      spec.weight.given_mean = 0.9;
      if (Validate(spec).empty()) specs.push_back(spec);
    }
  }
  return specs;
}

double TokensOf(const std::vector<Row>& rows) {
  double tokens = 0.0;
  for (const Row& row : rows)
    tokens +=
        static_cast<double>(std::count(row.mask.begin(), row.mask.end(), 1));
  return tokens;
}

// The rows are distributed over ranks; each corrects its own.
TEST_P(LossRegrouping, DataParallelRanksSumToTheWholeBatch) {
  const std::vector<Row> rows = RowsOfAllSizes(1, 21);
  const OwnedBatch whole(rows);
  for (const CorrectionSpec& spec :
       Specs(TokensOf(rows), static_cast<double>(rows.size()))) {
    SCOPED_TRACE(Describe(spec.loss));
    const Corrected all = Correct(spec, whole);
    const ReferenceResult reference = Reference(spec, whole.view());
    for (size_t ranks : {1, 2, 4, 7}) {
      if (kSanitized && ranks < 7) continue;
      std::vector<BatchSums> parts;
      size_t begin = 0;
      for (size_t rank = 0; rank < ranks; ++rank) {
        const size_t end = rows.size() * (rank + 1) / ranks;
        const OwnedBatch part({rows.begin() + begin, rows.begin() + end});
        const Corrected corrected = Correct(spec, part);
        parts.push_back(corrected.sums());
        for (size_t i = begin; i < end; ++i) {
          const int64_t length = rows[i].size();
          ASSERT_TRUE(SameOutputs(
              RowOutputs(all, whole, static_cast<int64_t>(i), length),
              RowOutputs(corrected, part, static_cast<int64_t>(i - begin),
                         length)))
              << "row " << i << " of " << ranks << " ranks";
        }
        begin = end;
      }
      EXPECT_TRUE(
          CombinesTo(parts, all.sums(), reference.magnitudes, kReordered))
          << ranks << " ranks";
    }
  }
}

TEST_P(LossRegrouping, PermutedRowsKeepTheirGradients) {
  const std::vector<Row> rows = RowsOfAllSizes(2, 16);
  std::vector<Row> reversed(rows.rbegin(), rows.rend());
  const OwnedBatch a(rows), b(reversed);
  for (const CorrectionSpec& spec : Specs(1e3, 16)) {
    SCOPED_TRACE(Describe(spec.loss));
    const Corrected x = Correct(spec, a), y = Correct(spec, b);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto there = static_cast<int64_t>(rows.size() - 1 - i);
      ASSERT_TRUE(
          SameOutputs(RowOutputs(x, a, static_cast<int64_t>(i), rows[i].size()),
                      RowOutputs(y, b, there, rows[i].size())));
    }
    EXPECT_TRUE(SumsAgree(x.sums(), y.sums(),
                          Reference(spec, a.view()).magnitudes, kReordered));
  }
}

TEST_P(LossRegrouping, PaddedIsPacked) {
  const std::vector<Row> rows = RowsOfAllSizes(3, 8);
  const OwnedBatch packed(rows);
  for (int64_t padded_length : {9000, 9216}) {
    if (kSanitized && padded_length > 9000) continue;
    const OwnedBatch padded(rows,
                            {.padded_length = padded_length, .padding = NAN});
    for (const CorrectionSpec& spec : Specs(1e3, 8)) {
      SCOPED_TRACE(Describe(spec.loss));
      const Corrected a = Correct(spec, packed), b = Correct(spec, padded);
      EXPECT_TRUE(SameSums(a.sums(), b.sums(), "positions"));
      for (size_t i = 0; i < rows.size(); ++i)
        ASSERT_TRUE(SameOutputs(
            RowOutputs(a, packed, static_cast<int64_t>(i), rows[i].size()),
            RowOutputs(b, padded, static_cast<int64_t>(i), rows[i].size())));
    }
  }
}

// Tokens chosen from the whole batch are the same in either layout.
TEST_P(LossRegrouping, SelectionsDoNotSeePadding) {
  const std::vector<Row> rows = RowsOfAllSizes(4, 20);
  const OwnedBatch packed(rows);
  const OwnedBatch padded(rows, {.padded_length = 9100, .padding = NAN});
  for (Surrogate surrogate : {Surrogate::kKlCov, Surrogate::kClipCov}) {
    const CorrectionSpec spec = WithLoss(BusyLoss(surrogate, 0.3));
    const Corrected a = Correct(spec, packed), b = Correct(spec, padded);
    EXPECT_TRUE(SameSums(a.sums(), b.sums(), "positions"));
    for (size_t i = 0; i < rows.size(); ++i)
      ASSERT_TRUE(SameOutputs(
          RowOutputs(a, packed, static_cast<int64_t>(i), rows[i].size()),
          RowOutputs(b, padded, static_cast<int64_t>(i), rows[i].size())));
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(LossRegrouping);

}  // namespace
}  // namespace counterweight::kernels
