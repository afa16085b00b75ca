// Findings of batches made by hand, and laws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/doctor/examine.h"
#include "kernels/doctor/passes.h"
#include "kernels/math/bits.h"
#include "kernels/math/exp.h"
#include "tests/testing/batch_builder.h"

namespace counterweight::kernels::doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr InputRole kRollout = InputRole::kRollout;
constexpr InputRole kOld = InputRole::kOld;
constexpr InputRole kAdvantages = InputRole::kAdvantages;

// A row with the log-probs of an engine and of a trainer that agree but for
// noise.
Row HealthyRow(int64_t size, std::mt19937_64* random) {
  std::exponential_distribution<double> surprise(0.8);
  std::normal_distribution<double> noise(0.0, 0.02);
  Row row;
  for (int64_t i = 0; i < size; ++i) {
    const double x = -surprise(*random) - 1e-4;
    row.mask.push_back(1);
    row[kRollout].push_back(static_cast<float>(x));
    row[kOld].push_back(static_cast<float>(x * std::exp(noise(*random))));
  }
  return row;
}

std::vector<Row> HealthyRows(int count, int64_t size = 50, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<Row> rows;
  for (int i = 0; i < count; ++i) rows.push_back(HealthyRow(size, &random));
  return rows;
}

Diagnosis ExamineRows(const std::vector<Row>& rows, Layout layout = {}) {
  return Examine(OwnedBatch(rows, layout).view(), nullptr);
}

std::vector<Name> Names(const Diagnosis& diagnosis) {
  std::vector<Name> names;
  for (const Finding& each : diagnosis.findings) names.push_back(each.name);
  return names;
}

TEST(Doctor, FindsNothingInHealthyRows) {
  const Diagnosis diagnosis = ExamineRows(HealthyRows(40));
  EXPECT_THAT(Names(diagnosis), ElementsAre());
  EXPECT_EQ(diagnosis.tokens, 2000);
  EXPECT_EQ(diagnosis.examined_tokens, 2000);
  EXPECT_EQ(diagnosis.sequences, 40);
}

TEST(Doctor, NamesAShiftWithBothNumbers) {
  std::vector<Row> rows = HealthyRows(20);
  for (Row& row : rows) {
    row[kRollout].erase(row[kRollout].begin());
    row[kRollout].push_back(-0.5f);
  }
  const Diagnosis diagnosis = ExamineRows(rows);
  ASSERT_THAT(Names(diagnosis), ElementsAre(Name::kShifted));
  const Finding& finding = diagnosis.findings[0];
  EXPECT_EQ(finding.stream, Stream::kRollout);
  // Position t of rollout_log_probs has the number of token t + 1.
  EXPECT_STREQ(finding.detail, "early");
  EXPECT_GT(finding.observed, 0.8);
  EXPECT_LT(finding.repaired, 0.05);
  EXPECT_DOUBLE_EQ(finding.confidence,
                   1.0 - finding.repaired / finding.observed);
}

TEST(Doctor, NamesTheFirstFiller) {
  std::vector<Row> rows = HealthyRows(20);
  for (const int64_t row : {7, 9, 11}) {
    rows[static_cast<size_t>(row)][kRollout][13] = -9999.0f;
  }
  const Diagnosis diagnosis = ExamineRows(rows);
  ASSERT_THAT(Names(diagnosis), ElementsAre(Name::kSentinel));
  const Finding& finding = diagnosis.findings[0];
  EXPECT_EQ(finding.sequence, 7);
  EXPECT_EQ(finding.position, 13);
  EXPECT_THAT(Sentence(finding),
              HasSubstr("rollout_log_probs is exactly -9999 at 0.3 % of the "
                        "tokens, and the other side is far from it at 3;"));
  EXPECT_THAT(Sentence(finding), HasSubstr("first in row 7 at position 13."));
}

TEST(Doctor, ReportsNumbersThatAreNotFinite) {
  std::vector<Row> rows = HealthyRows(20);
  rows[3][kOld][5] = std::numeric_limits<float>::infinity();
  rows[4][kRollout][6] = kNaN;
  rows[5].mask[7] = 0;
  rows[5][kRollout][7] = kNaN;
  const Diagnosis diagnosis = ExamineRows(rows);
  ASSERT_THAT(Names(diagnosis), ElementsAre(Name::kNonFinite));
  const Finding& finding = diagnosis.findings[0];
  EXPECT_EQ(finding.stream, Stream::kOld);
  EXPECT_EQ(finding.sequence, 3);
  EXPECT_EQ(finding.position, 5);
  EXPECT_EQ(finding.evidence[0].value, 2.0);
  EXPECT_EQ(diagnosis.tokens, 997);
}

TEST(Doctor, AMaskOfZerosHasNoTokens) {
  std::vector<Row> rows = HealthyRows(3);
  for (Row& row : rows) row.mask.assign(row.mask.size(), 0);
  EXPECT_THAT(Names(ExamineRows(rows)), ElementsAre(Name::kNoTokens));
  EXPECT_THAT(Names(ExamineRows({})), ElementsAre(Name::kNoTokens));
}

TEST(Doctor, HalfTypesAreNotRounded) {
  const std::vector<Row> rows = HealthyRows(20);
  EXPECT_THAT(Names(ExamineRows(rows, {.dtype = DType::kBF16})), ElementsAre());
  EXPECT_THAT(Names(ExamineRows(rows, {.dtype = DType::kF16})), ElementsAre());
}

TEST(Doctor, MisalignedTensorsAreTheSame) {
  std::vector<Row> rows = HealthyRows(20);
  for (Row& row : rows) row[kOld] = row[kRollout];
  const Diagnosis diagnosis = ExamineRows(rows, {.misalignment = 1});
  EXPECT_THAT(Names(diagnosis), ElementsAre(Name::kOldEqualsRollout));
}

// Tokens of two outcomes; the rollout's policy samples one of them. Dividing
// the trainer's logits by T divides the log odds. Both sides have a little
// noise.
std::vector<Row> TwoOutcomeRows(double temperature) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  const auto log_prob = [](double odds) {
    return static_cast<float>(-log64(1.0 + exp64(-odds)));
  };
  std::vector<Row> rows(60);
  for (Row& row : rows) {
    for (int i = 0; i < 50; ++i) {
      const double odds = 1.0 + 2.0 * normal(random);
      const bool is_first = uniform(random) < 1.0 / (1.0 + exp64(-odds));
      const double sampled = is_first ? odds : -odds;
      row.mask.push_back(1);
      row[kRollout].push_back(log_prob(sampled));
      row[kOld].push_back(
          log_prob((sampled + 0.02 * normal(random)) / temperature));
    }
  }
  return rows;
}

TEST(Doctor, ReadsTemperaturesWithinTwoPercent) {
  for (const double temperature : {0.7, 0.8, 0.9, 1.1, 1.2, 1.3}) {
    const Diagnosis diagnosis = ExamineRows(TwoOutcomeRows(temperature));
    ASSERT_THAT(Names(diagnosis), ElementsAre(Name::kTemperature))
        << temperature;
    EXPECT_NEAR(diagnosis.findings[0].evidence[0].value / temperature, 1.0,
                0.02);
  }
  EXPECT_THAT(Names(ExamineRows(TwoOutcomeRows(1.0))), ElementsAre());
}

TEST(Doctor, ExaminesAtMost65536PositionsOfWholeRows) {
  std::vector<Row> rows = HealthyRows(400, 512);
  for (Row& row : rows) {
    for (float& x : row[kOld]) x *= 0.43429448f;
  }
  // One among many: counted over every token.
  rows[399][kRollout][511] = 0.25f;
  const Diagnosis diagnosis = ExamineRows(rows);
  EXPECT_THAT(Names(diagnosis),
              ElementsAre(Name::kPositiveLogProbs, Name::kLog10));
  EXPECT_EQ(diagnosis.tokens, 400 * 512);
  EXPECT_EQ(diagnosis.examined_tokens, diagnosis.sequences * 512);
  EXPECT_LE(diagnosis.examined_tokens, 65536);
  EXPECT_GT(diagnosis.examined_tokens, 65536 / 2);
}

TEST(Doctor, ARowThatIsTooLongIsCut) {
  std::vector<Row> rows = HealthyRows(2, 70'000);
  for (Row& row : rows) row[kOld] = row[kRollout];
  const Diagnosis diagnosis = ExamineRows(rows);
  EXPECT_EQ(diagnosis.examined_tokens, 65536);
  EXPECT_THAT(Names(diagnosis), ElementsAre(Name::kOldEqualsRollout));
}

// Groups are whole only if every row is read.
TEST(Doctor, AdvantagesOfEveryRowAddUpInTheirGroup) {
  std::vector<Row> rows = HealthyRows(400, 512);
  std::vector<int64_t> groups;
  for (size_t row = 0; row < rows.size(); ++row) {
    groups.push_back(static_cast<int64_t>(row) % 50);
    const bool first = row < 200;
    rows[row][kAdvantages].assign(512, first ? 1.0f : -1.0f);
  }
  const OwnedBatch healthy(rows);
  EXPECT_THAT(Names(Examine(healthy.view(), groups.data())), ElementsAre());
  for (size_t row = 0; row < 200; ++row)
    rows[row][kAdvantages].assign(512, 2.0f);
  const OwnedBatch off(rows);
  const Diagnosis diagnosis = Examine(off.view(), groups.data());
  ASSERT_THAT(Names(diagnosis), ElementsAre(Name::kAdvantagesNotCentred));
  EXPECT_EQ(diagnosis.findings[0].evidence[0].value, 50.0);
}

TEST(Doctor, StalenessMakesACopyAnError) {
  std::vector<Row> rows = HealthyRows(20);
  for (Row& row : rows) row[kOld] = row[kRollout];
  const OwnedBatch owned(rows);
  Batch batch = owned.view();
  const auto severity = [&] {
    return Examine(batch, nullptr).findings.at(0).severity;
  };
  EXPECT_EQ(severity(), Severity::kWarning);
  const VersionSpan span = {0, 0, 10, 7};
  const PolicyVersions fresh = {.trained = 7, .spans = &span, .num_spans = 1};
  batch.versions = &fresh;
  EXPECT_EQ(severity(), Severity::kWarning);
  const PolicyVersions stale = {.trained = 8, .spans = &span, .num_spans = 1};
  batch.versions = &stale;
  EXPECT_EQ(severity(), Severity::kError);
}

TEST(DoctorPasses, HaveTheSameBitsForEveryInstructionSet) {
  const std::vector<Row> rows = HealthyRows(30, 77);
  std::vector<float> x = {-1.0f}, y = {-1.0f}, link = {0.0f}, weight;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.mask.size(); ++i) {
      x.push_back(row[kRollout][i]);
      y.push_back(row[kOld][i]);
      link.push_back(i + 1 < row.mask.size() ? 1.0f : 0.0f);
      weight.push_back(1.0f);
    }
  }
  x[5] = 0.0f;
  x[9] = -3e38f;
  y[7] = 3e38f;
  const auto n = static_cast<int64_t>(weight.size()) / kPassLanes * kPassLanes;
  x.resize(x.size() + kPassLanes, -1.0f);
  y.resize(y.size() + kPassLanes, -1.0f);
  const PairInput input = {x.data() + 1, y.data() + 1, link.data() + 1,
                           weight.data(), n};
  double wanted[kNumPairSums];
  GenericPasses()->sum_pairs(input, wanted);
  const Passes& best = BestPasses();
  double sums[kNumPairSums];
  best.sum_pairs(input, sums);
  for (int k = 0; k < kNumPairSums; ++k) {
    EXPECT_EQ(bits_of(sums[k]), bits_of(wanted[k])) << k << " " << best.name;
  }
}

}  // namespace
}  // namespace counterweight::kernels::doctor
