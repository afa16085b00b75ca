// Drift by staleness has the same bits in the walk and in a pass of its own.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/staleness.h"
#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using StalenessWalks = EveryBackend;

constexpr int kStalenessCases = SanitizedSample(80);
constexpr int64_t kTrained = 40;

// Rows of lengths around tiles and segments, and long enough to be cut up.
std::vector<Row> Rows(Random& random, double spread) {
  std::vector<Row> rows;
  for (const int64_t length : {0, 1, 255, 256, 257, 700, 4096, 4097, 70000}) {
    if (length > 5000 && random.Chance(0.8)) continue;
    rows.push_back(RandomRow(random, length, {.spread = spread}));
  }
  return rows;
}

// Versions in runs, as engines take them up; some tokens have any version, or
// none. Masked ones have garbage.
std::vector<int32_t> Versions(Random& random, const std::vector<Row>& rows) {
  std::vector<int32_t> versions;
  for (const Row& row : rows) {
    const bool is_wild = random.Chance(0.3);
    int64_t version = random.Integer(0, kTrained);
    for (int64_t i = 0; i < row.size(); ++i) {
      if (random.Chance(is_wild ? 0.9 : 0.01)) {
        version = random.Integer(-1, kTrained);
      }
      const bool counts = row.mask[static_cast<size_t>(i)] != 0;
      versions.push_back(counts ? static_cast<int32_t>(version) : -77);
    }
  }
  return versions;
}

std::vector<VersionSpan> SpansOf(const std::vector<Row>& rows,
                                 const std::vector<int32_t>& versions) {
  std::vector<VersionSpan> spans;
  size_t at = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (int64_t i = 0; i < rows[r].size(); ++i, ++at) {
      if (versions[at] < 0) continue;
      if (!spans.empty() && spans.back().sequence == static_cast<int64_t>(r) &&
          spans.back().end == i && spans.back().version == versions[at]) {
        ++spans.back().end;
      } else {
        spans.push_back({static_cast<int64_t>(r), i, i + 1, versions[at]});
      }
    }
  }
  return spans;
}

CorrectionSpec RandomSpecOf(Random& random, uint64_t seed, double spread) {
  CorrectionSpec spec = seed % 2 == 0 ? RandomSpec(random, spread)
                                      : RandomLossSpec(random, spread, 70000);
  for (LossReduction* const reduction :
       {&spec.loss.reduction, &spec.loss.kl.reduction}) {
    if (reduction->row == RowCount::kGroupTokens ||
        reduction->row == RowCount::kGiven) {
      reduction->row = RowCount::kOne;
    }
  }
  return spec;
}

TEST_P(StalenessWalks, HaveTheBitsOfAPassOfItsOwn) {
  int measured = 0;
  for (uint64_t seed = 0; seed < kStalenessCases; ++seed) {
    Random random(seed);
    const double spread = std::pow(10.0, random.Uniform(-3, 0.5));
    const CorrectionSpec spec = RandomSpecOf(random, seed, spread);
    const std::vector<Row> rows = Rows(random, spread);
    const OwnedBatch owned(rows);
    const std::vector<int32_t> of_positions = Versions(random, rows);
    const std::vector<VersionSpan> spans = SpansOf(rows, of_positions);
    const PolicyVersions by_position{
        .trained = kTrained, .of_positions = of_positions.data(), .came = true};
    const PolicyVersions by_span{
        .trained = kTrained,
        .spans = spans.data(),
        .num_spans = static_cast<int64_t>(spans.size()),
        .came = true};
    for (const PolicyVersions* versions : {&by_position, &by_span}) {
      Batch batch = owned.view();
      batch.versions = versions;
      const CorrectResult walked =
          corrector_->Correct(spec, batch, {.partial_sums = true});
      ASSERT_EQ(walked.status, CorrectStatus::kOk);
      if (walked.sums.staleness.measured == 0) continue;
      ++measured;
      batch.versions = nullptr;
      CorrectResult alone =
          corrector_->Correct(spec, batch, {.partial_sums = true});
      MeasureStaleness(spec, batch, *versions, {}, corrector_, {}, &alone);
      ASSERT_EQ(alone.status, CorrectStatus::kOk);
      for (int b = 0; b < kNumStalenessBuckets; ++b) {
        const StalenessBucketSums& x = walked.sums.staleness.buckets[b];
        const StalenessBucketSums& y = alone.sums.staleness.buckets[b];
        ASSERT_EQ(0, std::memcmp(&x, &y, sizeof(x)))
            << ToString(spec) << " range " << b << ": " << x.tokens << " "
            << x.log_ratio << " " << x.k3 << " is not " << y.tokens << " "
            << y.log_ratio << " " << y.k3;
      }
      ASSERT_EQ(0, std::memcmp(&walked.sums.staleness, &alone.sums.staleness,
                               sizeof(StalenessSums)))
          << ToString(spec);
      ASSERT_EQ(walked.partial, alone.partial) << ToString(spec);
    }
  }
  // A GPU leaves them to the pass.
  if (corrector_->Info().name == "cpu") {
    EXPECT_EQ(measured, 2 * kStalenessCases);
  }
}

// The caller finds them by the pass, which names the first.
TEST_P(StalenessWalks, LeaveWrongVersionsToThePass) {
  Random random(1);
  const std::vector<Row> rows = {RandomRow(random, 300, {.masked = 0.0}),
                                 RandomRow(random, 9000, {.masked = 0.0})};
  const OwnedBatch owned(rows);
  for (const int32_t wrong :
       {static_cast<int32_t>(kTrained) + 1, -2, INT32_MAX, INT32_MIN}) {
    for (const size_t at : {0, 299, 300, 9000}) {
      std::vector<int32_t> versions(9300, 3);
      versions[at] = wrong;
      const PolicyVersions told{
          .trained = kTrained, .of_positions = versions.data(), .came = true};
      Batch batch = owned.view();
      batch.versions = &told;
      const CorrectResult result =
          corrector_->Correct(WithWeight({.level = Level::kToken}), batch, {});
      ASSERT_EQ(result.status, CorrectStatus::kOk);
      EXPECT_EQ(result.sums.staleness.measured, 0) << wrong << " at " << at;
    }
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(StalenessWalks);

}  // namespace
}  // namespace counterweight::kernels
