// Sums as a value: those of any parts of a batch, added in any order, have the
// bytes of the whole batch's, and so has what is made of them.
#include "kernels/partial_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/math/exact_sum.h"
#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using PartialSumsLaws = EveryBackend;

constexpr int kCases = SanitizedSample(60);

::testing::AssertionResult SameBytes(const char* name,
                                     const std::vector<double>& a,
                                     const std::vector<double>& b) {
  if (a.size() != b.size()) {
    return ::testing::AssertionFailure() << name << " differ in size";
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(double)) != 0) {
      return ::testing::AssertionFailure()
             << name << "[" << i << "]: " << a[i] << " is not " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult SameBytes(const PartialSums& a,
                                     const PartialSums& b) {
  for (const auto& same : {SameBytes("whole", a.whole, b.whole),
                           SameBytes("narrow", a.narrow, b.narrow),
                           SameBytes("wide", a.wide, b.wide),
                           SameBytes("maxima", a.maxima, b.maxima)}) {
    if (!same) return same;
  }
  return ::testing::AssertionSuccess();
}

// Parts are one more than the whole; no sum of rows.
PartialSums WithoutParts(PartialSums sums) {
  sums.whole[kPartialParts] = 0.0;
  return sums;
}

struct Case {
  CorrectionSpec spec;
  std::vector<Row> rows;
};

void DivideByNoCount(LossReduction* reduction) {
  reduction->count = BatchCount::kOne;
  if (reduction->row == RowCount::kGroupTokens ||
      reduction->row == RowCount::kGiven) {
    reduction->row = RowCount::kOne;
  }
}

// Rows of all sizes. A loss, of every other case, couples no rows.
Case RandomCase(uint64_t seed) {
  Random random(seed);
  const double spread = std::pow(10.0, random.Uniform(-3, 1));
  Case c;
  do {
    c.spec = seed % 2 == 0 ? RandomSpec(random, spread)
                           : RandomLossSpec(random, spread, 300);
    DivideByNoCount(&c.spec.loss.reduction);
    DivideByNoCount(&c.spec.loss.kl.reduction);
    if (c.spec.weight.normalize) c.spec.weight.given_mean = 0.9;
    c.spec.non_finite = NonFinitePolicy::kDrop;
    c.spec.peer_sums = seed % 3 == 0;
  } while (!Validate(c.spec).empty() ||
           HasTrait(c.spec.loss.surrogate, kTraitSelection));
  const auto num_rows = random.Integer(1, 40);
  for (int64_t i = 0; i < num_rows; ++i) {
    const double size = std::pow(10.0, random.Uniform(-6, 2));
    const int64_t length =
        random.Chance(0.1) ? 0
                           : random.Integer(1, random.Chance(0.1) ? 9000 : 300);
    c.rows.push_back(RandomRow(
        random, length, {.spread = size, .masked = 0.2, .non_finite = 1e-3}));
  }
  return c;
}

// Parts of the rows, some of them empty, in a random order.
std::vector<std::vector<Row>> RandomParts(uint64_t seed,
                                          std::vector<Row> rows) {
  Random random(seed, "parts");
  for (size_t i = rows.size() - 1; i > 0; --i) {
    std::swap(
        rows[i],
        rows[static_cast<size_t>(random.Integer(0, static_cast<int64_t>(i)))]);
  }
  std::vector<std::vector<Row>> parts(
      static_cast<size_t>(random.Integer(1, 9)));
  for (Row& row : rows) {
    const auto part = random.Integer(0, static_cast<int64_t>(parts.size()) - 1);
    parts[static_cast<size_t>(part)].push_back(std::move(row));
  }
  return parts;
}

class Partial {
 public:
  explicit Partial(Corrector* corrector) : corrector_(*corrector) {}

  CorrectResult Of(const CorrectionSpec& spec,
                   const std::vector<Row>& rows) const {
    const OwnedBatch owned(rows);
    const Batch batch = owned.view();
    return corrector_.Correct(spec, batch, {.partial_sums = true});
  }

 private:
  Corrector& corrector_;
};

TEST_P(PartialSumsLaws, PartsAddUpToTheWhole) {
  const Partial partial(corrector_);
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case c = RandomCase(seed);
    SCOPED_TRACE(ToString(c.spec) + Describe(c.spec.loss));
    const CorrectResult whole = partial.Of(c.spec, c.rows);
    ASSERT_EQ(whole.status, CorrectStatus::kOk);
    PartialSums sums = NoSums(c.spec, false);
    SetAgreed(Agreed::kLossCount, whole.sums.loss.count, &sums);
    const auto parts = RandomParts(seed, c.rows);
    for (const std::vector<Row>& rows : parts) {
      const PartialSums part = partial.Of(c.spec, rows).partial;
      ASSERT_TRUE(HaveSameSizes(part, sums));
      Merge(part, &sums);
    }
    EXPECT_EQ(sums.whole[kPartialParts], static_cast<double>(parts.size()));
    ASSERT_TRUE(SameBytes(WithoutParts(sums), WithoutParts(whole.partial)));
    ASSERT_TRUE(SameSums(SumsOf(c.spec, sums), whole.sums));
  }
}

// As an all-reduce does: no vector is settled in between.
TEST_P(PartialSumsLaws, PlainSumsAndMaximaMergeToo) {
  const Partial partial(corrector_);
  for (uint64_t seed = 1000; seed < 1000 + kCases; ++seed) {
    const Case c = RandomCase(seed);
    const CorrectResult whole = partial.Of(c.spec, c.rows);
    PartialSums sums = NoSums(c.spec, false);
    SetAgreed(Agreed::kLossCount, whole.sums.loss.count, &sums);
    for (const std::vector<Row>& rows : RandomParts(seed, c.rows)) {
      const PartialSums part = partial.Of(c.spec, rows).partial;
      const auto add = [](const std::vector<double>& from,
                          std::vector<double>* to) {
        for (size_t i = 0; i < from.size(); ++i) (*to)[i] += from[i];
      };
      add(part.whole, &sums.whole);
      add(part.narrow, &sums.narrow);
      add(part.wide, &sums.wide);
      for (size_t i = 0; i < part.maxima.size(); ++i) {
        sums.maxima[i] = std::max(sums.maxima[i], part.maxima[i]);
      }
    }
    Settle(&sums);
    ASSERT_TRUE(SameBytes(WithoutParts(sums), WithoutParts(whole.partial)))
        << ToString(c.spec);
  }
}

// Whatever the method, also one whose losses do not add up.
TEST_P(PartialSumsLaws, ABatchIsMadeOfItsSums) {
  const Partial partial(corrector_);
  const Partial base(&BaseCorrector());
  for (uint64_t seed = 2000; seed < 2000 + kCases; ++seed) {
    Random random(seed);
    const double spread = random.Uniform(1e-3, 1.0);
    CorrectionSpec spec = RandomLossSpec(random, spread, 100);
    spec.non_finite = NonFinitePolicy::kNeutralize;
    if (spec.loss.reduction.row == RowCount::kGroupTokens ||
        spec.loss.reduction.row == RowCount::kGiven) {
      spec.loss.reduction.row = RowCount::kOne;
    }
    const std::vector<Row> rows =
        RandomRows(random, {0, 1, 17, 100, 5000}, {.spread = spread});
    const CorrectResult result = partial.Of(spec, rows);
    ASSERT_TRUE(SameSums(SumsOf(spec, result.partial), result.sums))
        << ToString(spec) << Describe(spec.loss);
    ASSERT_TRUE(SameBytes(result.partial, base.Of(spec, rows).partial))
        << ToString(spec);
  }
}

// Without metrics the loss and the counts are there.
TEST_P(PartialSumsLaws, WithoutMetricsLossesAddUp) {
  const Partial partial(corrector_);
  for (uint64_t seed = 3001; seed < 3001 + kCases; seed += 2) {
    Case c = RandomCase(seed);
    c.spec.metrics = false;
    const CorrectResult whole = partial.Of(c.spec, c.rows);
    PartialSums sums = NoSums(c.spec, false);
    SetAgreed(Agreed::kLossCount, whole.sums.loss.count, &sums);
    for (const std::vector<Row>& rows : RandomParts(seed, c.rows)) {
      Merge(partial.Of(c.spec, rows).partial, &sums);
    }
    ASSERT_TRUE(SameBytes(WithoutParts(sums), WithoutParts(whole.partial)));
    const BatchSums finished = SumsOf(c.spec, sums);
    EXPECT_EQ(finished.tokens, whole.sums.tokens);
    EXPECT_EQ(finished.nonempty_sequences, whole.sums.nonempty_sequences);
    EXPECT_EQ(finished.kept_tokens, whole.sums.kept_tokens);
    EXPECT_EQ(finished.kept_sequences, whole.sums.kept_sequences);
    EXPECT_EQ(finished.non_finite_tokens, whole.sums.non_finite_tokens);
    EXPECT_EQ(finished.positive_log_probs, whole.sums.positive_log_probs);
    EXPECT_EQ(std::bit_cast<uint64_t>(finished.loss.total),
              std::bit_cast<uint64_t>(whole.sums.loss.total));
  }
}

// Parts of one batch, by one pass, have the bytes of a batch of each; some are
// empty, and some rows are in none.
TEST_P(PartialSumsLaws, PartsOfABatchAreThoseOfABatchOfEach) {
  const Partial partial(corrector_);
  for (uint64_t seed = 4000; seed < 4000 + kCases; ++seed) {
    Case c = RandomCase(seed);
    c.spec.loss = {};
    Random random(seed, "part of row");
    const int64_t count = random.Integer(0, 6);
    std::vector<int32_t> of_row;
    std::vector<std::vector<Row>> rows(static_cast<size_t>(count));
    for (const Row& row : c.rows) {
      of_row.push_back(static_cast<int32_t>(random.Integer(-1, count - 1)));
      if (of_row.back() < 0) continue;
      rows[static_cast<size_t>(of_row.back())].push_back(row);
    }
    const OwnedBatch owned(c.rows);
    std::vector<PartialSums> sums;
    const auto result = corrector_->SumParts(
        c.spec, owned.view(), {of_row.data(), count}, nullptr, &sums);
    ASSERT_EQ(result.has_value(), corrector_->Info().name == "cpu");
    if (!result) return;
    ASSERT_EQ(result->status, CorrectStatus::kOk);
    ASSERT_EQ(sums.size(), rows.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_TRUE(SameBytes(sums[i], partial.Of(c.spec, rows[i]).partial))
          << ToString(c.spec) << " part " << i;
    }
  }
}

TEST_P(PartialSumsLaws, PartsAreRefusedOrStoppedLikeABatch) {
  Random random(7);
  const std::vector<Row> rows = RandomRows(random, {5000, 5000, 5000});
  OwnedBatch owned(rows);
  const Batch batch = owned.view();
  const int32_t of_row[] = {0, 1, 0};
  std::vector<PartialSums> sums;
  const auto stopped = corrector_->SumParts(
      BusySpec(), batch, {of_row, 2}, [] { return true; }, &sums);
  if (!stopped) return;  // a backend that adds no parts
  EXPECT_EQ(stopped->status, CorrectStatus::kStopped);
  std::vector<Row> bad = rows;
  bad[1].mask[4321] = 1;
  bad[1][InputRole::kOld][4321] = NAN;
  const OwnedBatch owned_bad(bad);
  CorrectionSpec spec = BusySpec();
  spec.non_finite = NonFinitePolicy::kReject;
  const auto refused =
      corrector_->SumParts(spec, owned_bad.view(), {of_row, 2}, nullptr, &sums);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, CorrectStatus::kNonFinite);
  EXPECT_EQ(refused->non_finite.sequence, 1);
  EXPECT_EQ(refused->non_finite.token, 4321);
}

// Log-probs as marks of "never", perplexities of 1e217.
TEST_P(PartialSumsLaws, HoldForNumbersBeyondFloat32) {
  const Partial partial(corrector_);
  CorrectionSpec spec = BusySpec();
  spec.weight = {.level = Level::kSequence};
  spec.evaluation = Evaluation::kParallel;
  Random random(5);
  std::vector<Row> rows = RandomRows(random, {10, 300, 1, 7, 90});
  for (float& x : rows[1][InputRole::kOld]) x = -500.0f;
  rows[2][InputRole::kRollout][0] = -1e30f;
  for (float& x : rows[4][InputRole::kRollout]) x = 700.0f;
  const CorrectResult whole = partial.Of(spec, rows);
  EXPECT_GT(whole.sums.drift.numerator_ppl, 1e200);
  EXPECT_GT(whole.sums.drift.k2, 1e58);
  PartialSums sums = NoSums(spec, false);
  for (const Row& row : rows) Merge(partial.Of(spec, {row}).partial, &sums);
  EXPECT_TRUE(SameBytes(WithoutParts(sums), WithoutParts(whole.partial)));
  EXPECT_TRUE(SameSums(SumsOf(spec, sums), whole.sums));
}

COUNTERWEIGHT_ON_EVERY_BACKEND(PartialSumsLaws);

// A number that is half of a bin's grid has one form, whatever it was added of.
TEST(PartialSums, HalvesOfAGridHaveOneForm) {
  const auto grid = [](int bin) {
    return std::ldexp(1.0, kTopGrid - kBinBits * bin);
  };
  for (int k = 1; k < kBins; ++k) {
    const double half = grid(k - 1) / 2;
    PartialSums a = NoSums(BusySpec(), false), b = a, c = a;
    a.narrow[static_cast<size_t>(k)] = half;
    b.narrow[static_cast<size_t>(k)] = -half;
    b.narrow[static_cast<size_t>(k - 1)] = 2 * half;
    c.narrow[static_cast<size_t>(k)] = 3 * half;
    c.narrow[static_cast<size_t>(k - 1)] = -2 * half;
    Settle(&a);
    Settle(&b);
    Settle(&c);
    EXPECT_EQ(a.narrow[static_cast<size_t>(k)], half);
    EXPECT_TRUE(SameBytes(a, b)) << k;
    EXPECT_TRUE(SameBytes(a, c)) << k;
  }
}

TEST(PartialSums, PartsThatDifferAgreeOnNothing) {
  PartialSums a = NoSums(BusySpec(), false), b = a;
  SetAgreed(Agreed::kMethod, 1234.0, &a);
  SetAgreed(Agreed::kMethod, 1234.0, &b);
  Merge(b, &a);
  EXPECT_EQ(AgreedOn(a, Agreed::kMethod), 1234.0);
  SetAgreed(Agreed::kMethod, -5.0, &b);
  Merge(b, &a);
  EXPECT_FALSE(AgreedOn(a, Agreed::kMethod));
  EXPECT_EQ(AgreedOn(a, Agreed::kVersions), 0.0);
}

TEST(PartialSums, LossesThatDivideByTheirOwnCountsAreCounted) {
  const Partial partial(&BaseCorrector());
  Random random(6);
  const std::vector<Row> rows = RandomRows(random, {10, 20});
  CorrectionSpec spec = WithLoss(BusyLoss(Surrogate::kPpoClip, 0.1));
  spec.loss.reduction = {.count = BatchCount::kTokens};
  PartialSums sums = partial.Of(spec, rows).partial;
  Merge(PartialSums(sums), &sums);
  EXPECT_EQ(sums.whole[kPartialCoupled], 2.0);
  EXPECT_FALSE(AgreedOn(partial.Of(WithLoss(spec.loss), rows).partial,
                        Agreed::kLossCount) == 0.0);
  spec.loss.reduction = kPlainSum;
  EXPECT_EQ(partial.Of(spec, rows).partial.whole[kPartialCoupled], 0.0);
}

// The numbers of an all-reduce, without other systems' sums.
TEST(PartialSums, AreSmall) {
  const auto bytes = [](const CorrectionSpec& spec) {
    const PartialSums sums = NoSums(spec, true);
    return sizeof(double) * (sums.whole.size() + sums.narrow.size() +
                             sums.wide.size() + sums.maxima.size());
  };
  size_t most = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    CorrectionSpec spec = RandomLossSpec(random, 0.1, 100);
    spec.num_rules = std::min(spec.num_rules, 3);
    spec.peer_sums = spec.loss.peer_sums = false;
    most = std::max(most, bytes(spec));
  }
  RecordProperty("most_bytes", static_cast<int>(most));
  EXPECT_LE(most, 8u << 10);
}

}  // namespace
}  // namespace counterweight::kernels
