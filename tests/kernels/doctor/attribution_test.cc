// Attributions against float64, by hand, and their laws.
#include "kernels/doctor/attribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/doctor/examine.h"
#include "kernels/math/bits.h"
#include "tests/kernels/doctor/attribution_reference.h"
#include "tests/testing/batch_builder.h"

namespace counterweight::kernels::doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr InputRole kQ = InputRole::kRollout;
constexpr InputRole kO = InputRole::kOld;
constexpr InputRole kC = InputRole::kCurrent;

// Rows of 1 to most_length tokens, one in ten of them masked. The first
// differences are as large as `spread`, and grow with the magnitude.
std::vector<Row> DriftingRows(int count, int most_length, double spread,
                              uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> surprise(0.8);
  std::normal_distribution<double> noise(0.0, spread);
  std::uniform_int_distribution<int> length(1, most_length);
  std::vector<Row> rows(static_cast<size_t>(count));
  for (Row& row : rows) {
    for (int i = length(random); i > 0; --i) {
      const double q = -surprise(random) * surprise(random) - 1e-6;
      const double o = q + noise(random) * std::min(-q, 1.0);
      const double c = o + noise(random) * std::min(-q, 1.0);
      row.mask.push_back(i == 1 || random() % 10 != 0 ? 1 : 0);
      row[kQ].push_back(static_cast<float>(q));
      row[kO].push_back(static_cast<float>(o));
      row[kC].push_back(static_cast<float>(c));
    }
  }
  return rows;
}

Attribution AttributionOf(const std::vector<Row>& rows, Layout layout = {}) {
  const OwnedBatch batch(rows, layout);
  return *Examine(batch.view(), nullptr).attribution;
}

// The roles that a batch of these rows sends.
std::vector<Row> Only(std::vector<Row> rows, InputRole a, InputRole b) {
  for (Row& row : rows) {
    for (const InputRole role : {kQ, kO, kC}) {
      if (role != a && role != b) row[role].clear();
    }
  }
  return rows;
}

void ExpectNear(double value, long double wanted, double relative,
                const std::string& what) {
  EXPECT_NEAR(value, static_cast<double>(wanted),
              relative * std::abs(static_cast<double>(wanted)))
      << what;
}

// Sums of both signs: relative to the size of what is added.
void ExpectBuckets(const std::vector<Bucket>& buckets,
                   const ReferenceBuckets& wanted, double spread,
                   const std::string& what) {
  ASSERT_EQ(buckets.size(), wanted.size()) << what;
  size_t b = 0;
  for (const auto& [index, each] : wanted) {
    const Bucket& bucket = buckets[b++];
    EXPECT_EQ(bucket.tokens, each.tokens) << what << index;
    ExpectNear(bucket.k3, each.k3, 1e-5, what);
    EXPECT_NEAR(bucket.log_ratio, static_cast<double>(each.log_ratio),
                1e-6 * spread * static_cast<double>(each.tokens))
        << what << index;
  }
}

// k3(c - q) is computed from the one log ratio here, and from the parts there.
TEST(Attribution, IsThatOfFloat64) {
  uint64_t seed = 1;
  for (const double spread : {1e-5, 1e-3, 0.1, 0.7, 3.0}) {
    SCOPED_TRACE(spread);
    const std::vector<Row> rows = DriftingRows(60, 700, spread, seed++);
    const Attribution read = AttributionOf(rows);
    const ReferenceAttribution wanted = Reference(rows);
    const Causes& causes = read.causes;
    ExpectNear(causes.k3, wanted.k3, 1e-12, "k3");
    ExpectNear(causes.k3_engine_staleness, wanted.engine_staleness, 1e-12,
               "engine");
    ExpectNear(causes.k3_update, wanted.update, 1e-12, "update");
    const auto all = static_cast<double>(wanted.k3);
    EXPECT_NEAR(causes.k3_interaction, static_cast<double>(wanted.interaction),
                1e-12 * all);
    // Sums of both signs.
    const double tiny = 1e-12 * spread * static_cast<double>(read.tokens);
    EXPECT_NEAR(causes.kl, static_cast<double>(wanted.kl), tiny);
    EXPECT_NEAR(causes.kl_engine_staleness,
                static_cast<double>(wanted.kl_engine_staleness), tiny);
    EXPECT_NEAR(causes.kl_update, static_cast<double>(wanted.kl_update), tiny);
    EXPECT_EQ(causes.k3, (causes.k3_engine_staleness + causes.k3_update) +
                             causes.k3_interaction);
    ExpectBuckets(read.by_magnitude, wanted.by_magnitude, spread, "magnitude");
    ExpectBuckets(read.by_position, wanted.by_position, spread, "position");
    ExpectBuckets(read.by_length, wanted.by_length, spread, "length");
    ExpectBuckets(read.by_log_ratio, wanted.by_log_ratio, spread, "log ratio");
    size_t b = 0;
    for (const auto& [place, bucket] : wanted.by_position) {
      long double expected = 0.0L;
      for (const auto& [magnitude, tokens] : bucket.magnitudes) {
        const ReferenceBucket& all_of_it = wanted.by_magnitude.at(magnitude);
        expected += static_cast<long double>(tokens) * all_of_it.k3 /
                    static_cast<long double>(all_of_it.tokens);
      }
      ExpectNear(read.by_position[b++].k3_expected, expected, 1e-5, "expected");
    }
  }
}

// Bits of all numbers of an attribution.
std::vector<uint64_t> BitsOf(const Attribution& of) {
  std::vector<uint64_t> bits = {static_cast<uint64_t>(of.tokens),
                                static_cast<uint64_t>(of.sequences),
                                static_cast<uint64_t>(of.causes.fresh_tokens)};
  const Causes& causes = of.causes;
  for (const double each :
       {causes.k3, causes.kl, causes.k3_engine_staleness, causes.k3_update,
        causes.k3_interaction, causes.kl_engine_staleness, causes.kl_update,
        causes.k3_engine, causes.fresh_k3}) {
    bits.push_back(bits_of(each));
  }
  for (const auto& buckets :
       {of.by_magnitude, of.by_position, of.by_length, of.by_log_ratio}) {
    for (const Bucket& each : buckets) {
      bits.push_back(static_cast<uint64_t>(each.tokens));
      for (const double number :
           {each.first, each.log_ratio, each.k3, each.k3_expected}) {
        bits.push_back(bits_of(number));
      }
    }
  }
  for (const HeavySequence& each : of.heaviest) {
    bits.push_back(static_cast<uint64_t>(each.sequence));
    bits.push_back(static_cast<uint64_t>(each.tokens));
    bits.push_back(bits_of(each.k3));
  }
  return bits;
}

Streams StreamsOf(const Batch& batch) {
  Streams streams;
  for (const InputRole role : {kQ, kO, kC}) {
    if (batch.tensor(role).data == nullptr) continue;
    streams.roles[streams.count] = role;
    streams.tensors[streams.count++] = batch.tensor(role);
  }
  return streams;
}

AttributionSums SumsOf(const std::vector<Row>& rows, int64_t first_sequence) {
  const OwnedBatch owned(rows);
  const Batch batch = owned.view();
  const Streams streams = StreamsOf(batch);
  AttributionSums sums(streams);
  sums.Add(batch, TakeSample(batch, streams), first_sequence);
  return sums;
}

// Magnitudes of 1e-6 to 1e2, where order would matter.
TEST(Attribution, PartsMergeToTheSameBytesInAnyOrderAndGrouping) {
  std::vector<Row> rows;
  for (const double spread : {1e-4, 1e-2, 0.5, 5.0}) {
    for (Row& row : DriftingRows(15, 90, spread, 7)) rows.push_back(row);
  }
  // Ties are decided by the index.
  rows[50] = rows[49];
  std::mt19937_64 random(3);
  const std::vector<uint64_t> wanted = BitsOf(AttributionOf(rows));
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<AttributionSums> parts;
    for (size_t begin = 0; begin < rows.size();) {
      const size_t end = std::min(begin + 1 + random() % 20, rows.size());
      parts.push_back(SumsOf({rows.begin() + static_cast<int64_t>(begin),
                              rows.begin() + static_cast<int64_t>(end)},
                             static_cast<int64_t>(begin)));
      begin = end;
    }
    std::shuffle(parts.begin(), parts.end(), random);
    // Neighbours merge until one part is left.
    while (parts.size() > 1) {
      const size_t at = random() % (parts.size() - 1);
      parts[at].Merge(parts[at + 1]);
      parts.erase(parts.begin() + static_cast<int64_t>(at) + 1);
    }
    ASSERT_EQ(BitsOf(parts[0].Read()), wanted) << trial;
  }
}

TEST(Attribution, PaddingAndDTypesOfTheTensorsChangeNothing) {
  const std::vector<Row> rows = DriftingRows(30, 90, 0.3, 5);
  const auto wanted = BitsOf(AttributionOf(rows));
  EXPECT_EQ(BitsOf(AttributionOf(rows, {.padded_length = 97, .padding = kNaN})),
            wanted);
  EXPECT_EQ(BitsOf(AttributionOf(rows, {.misalignment = 1})), wanted);
}

TEST(Attribution, HasTheSameBitsForEveryInstructionSet) {
  const std::vector<Row> rows = DriftingRows(40, 600, 0.5, 11);
  const OwnedBatch owned(rows);
  const Batch batch = owned.view();
  const Streams streams = StreamsOf(batch);
  const Sample sample = TakeSample(batch, streams);
  const auto totals_of = [&](const Passes& passes) {
    std::vector<DriftRow> of_rows;
    for (const SampledRow& row : sample.rows) {
      of_rows.push_back({row.begin, row.end, row.sequence % 3 == 0, 0.0});
    }
    DriftTotals totals;
    passes.sum_drift({{sample.values(0), sample.values(1), sample.values(2)},
                      of_rows.data(),
                      static_cast<int64_t>(of_rows.size())},
                     &totals);
    std::vector<uint64_t> bits;
    for (const auto& bins : totals.bins) {
      for (const double bin : bins) bits.push_back(bits_of(bin + 0.0));
    }
    for (const auto& place : totals.tokens) {
      for (const int64_t count : place) bits.push_back(count);
    }
    for (const int64_t count : totals.log_ratio_tokens) bits.push_back(count);
    for (const int64_t count : totals.length_tokens) bits.push_back(count);
    bits.push_back(static_cast<uint64_t>(totals.fresh_tokens));
    for (const DriftRow& row : of_rows) bits.push_back(bits_of(row.k3));
    return bits;
  };
  EXPECT_EQ(totals_of(BestPasses()), totals_of(*GenericPasses()))
      << BestPasses().name;
}

// One row of tokens with rollout, old and current log-probs.
Row RowOfTokens(const std::vector<std::vector<float>>& tokens) {
  Row row;
  for (const std::vector<float>& token : tokens) {
    row.mask.push_back(1);
    row[kQ].push_back(token[0]);
    row[kO].push_back(token[1]);
    row[kC].push_back(token[2]);
  }
  return row;
}

// Tokens with ratios of 1/2, 2 and 1/2, by hand: k3(ln 2) = 1 - ln 2 and
// k3(-ln 2) = ln 2 - 1/2.
TEST(Attribution, OfTwoTokensByHand) {
  const float ln2 = 0.693147181f;
  const double exact = double{ln2};
  const Attribution read = AttributionOf(
      {RowOfTokens({{-2 * ln2, -ln2, -2 * ln2}, {-ln2, -ln2, -ln2}})});
  EXPECT_EQ(read.tokens, 2);
  EXPECT_EQ(read.numerator, kC);
  EXPECT_EQ(read.denominator, kQ);
  EXPECT_NEAR(read.causes.k3_engine_staleness, 1.0 - exact, 1e-7);
  EXPECT_NEAR(read.causes.k3_update, exact - 0.5, 1e-7);
  EXPECT_NEAR(read.causes.k3_interaction, -0.5, 1e-7);
  EXPECT_NEAR(read.causes.k3, 0.0, 1e-15);
  EXPECT_EQ(read.causes.kl, 0.0);
  EXPECT_EQ(read.causes.kl_engine_staleness, -exact);
  EXPECT_EQ(read.causes.kl_update, exact);
  ASSERT_EQ(read.by_magnitude.size(), 2u);
  EXPECT_EQ(read.by_magnitude[0].first, 0.5);
  EXPECT_EQ(read.by_magnitude[1].first, 1.0);
  ASSERT_EQ(read.by_log_ratio.size(), 1u);
  EXPECT_EQ(read.by_log_ratio[0].first, -0.01);
  EXPECT_EQ(read.by_log_ratio[0].tokens, 2);
}

std::vector<double> Firsts(const std::vector<Bucket>& buckets) {
  std::vector<double> firsts;
  for (const Bucket& bucket : buckets) firsts.push_back(bucket.first);
  return firsts;
}
std::vector<int64_t> Tokens(const std::vector<Bucket>& buckets) {
  std::vector<int64_t> tokens;
  for (const Bucket& bucket : buckets) tokens.push_back(bucket.tokens);
  return tokens;
}

// Edges belong to the magnitudes above them, and to the log ratios below them.
TEST(Attribution, EdgesOfTheBuckets) {
  Row row;
  for (const float q :
       {-0.0f, -0.01f, -0.1f, -0.5f, -1.0f, -2.0f, -4.0f, -8.0f, 0.5f}) {
    row.mask.push_back(1);
    row[kQ].push_back(q);
    row[kO].push_back(q);
  }
  const Attribution by_magnitude = AttributionOf({row});
  EXPECT_THAT(Firsts(by_magnitude.by_magnitude),
              ElementsAre(0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0));
  EXPECT_THAT(Tokens(by_magnitude.by_magnitude),
              ElementsAre(2, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(Firsts(by_magnitude.by_position), ElementsAre(0, 1, 2, 4, 8));
  EXPECT_THAT(Tokens(by_magnitude.by_position), ElementsAre(1, 1, 2, 4, 1));
  EXPECT_THAT(Firsts(by_magnitude.by_length), ElementsAre(8));
  const Attribution by_log_ratio =
      AttributionOf({RowOf({-1.5f, -1.0f, -0.3f, -0.1f, -0.03f, -0.01f, 0.0f,
                            0.01f, 0.03f, 0.1f, 0.3f, 1.0f, 1.5f})});
  EXPECT_THAT(Firsts(by_log_ratio.by_log_ratio),
              ElementsAre(-20.0, -1.0, -0.3, -0.1, -0.03, -0.01, 0.01, 0.03,
                          0.1, 0.3, 1.0));
  EXPECT_THAT(Tokens(by_log_ratio.by_log_ratio),
              ElementsAre(2, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1));
}

// Position counts the row's tokens, from the first that counts.
TEST(Attribution, PositionsLeaveOutWhatIsMasked) {
  std::vector<Row> rows = DriftingRows(1, 1, 0.1, 1);
  Row& row = rows[0];
  row = {};
  for (int i = 0; i < 70; ++i) {
    row.mask.push_back(i >= 20 && i != 30 ? 1 : 0);
    row[kQ].push_back(-1.0f);
    row[kO].push_back(-1.5f);
  }
  const Attribution read = AttributionOf(rows);
  EXPECT_THAT(Firsts(read.by_position), ElementsAre(0, 1, 2, 4, 8, 16, 32));
  EXPECT_THAT(Tokens(read.by_position), ElementsAre(1, 1, 2, 4, 8, 16, 17));
  EXPECT_THAT(Firsts(read.by_length), ElementsAre(32));
}

TEST(Attribution, TheHeaviestSequencesAndTheirTies) {
  std::vector<Row> rows;
  for (int i = 0; i < 20; ++i) {
    const float ratio = i % 2 == 0 ? 0.5f : 0.25f;
    rows.push_back(RowOf({ratio, i == 7 ? 2.0f : 0.0f, 0.0f}));
  }
  const Attribution read = AttributionOf(rows);
  std::vector<int64_t> sequences;
  for (const HeavySequence& each : read.heaviest) {
    sequences.push_back(each.sequence);
    EXPECT_EQ(each.tokens, 3);
  }
  EXPECT_THAT(sequences, ElementsAre(7, 0, 2, 4, 6, 8, 10, 12));
  EXPECT_NEAR(read.heaviest[0].k3,
              std::expm1(0.25) - 0.25 + std::expm1(2.0) - 2.0, 1e-12);
  EXPECT_NEAR(read.heaviest[1].k3, std::expm1(0.5) - 0.5, 1e-14);
}

// A cause that needs a tensor which was not sent is unknown, and not 0.
TEST(Attribution, NamesWhatCannotBeKnown) {
  const std::vector<Row> rows = DriftingRows(20, 60, 0.2, 9);
  const Causes all = AttributionOf(rows).causes;
  const Attribution engine = AttributionOf(Only(rows, kQ, kO));
  EXPECT_EQ(engine.numerator, kO);
  EXPECT_EQ(engine.causes.k3, all.k3_engine_staleness);
  EXPECT_EQ(engine.causes.k3_engine_staleness, all.k3_engine_staleness);
  EXPECT_EQ(engine.causes.kl_engine_staleness, all.kl_engine_staleness);
  EXPECT_TRUE(std::isnan(engine.causes.k3_update));
  EXPECT_TRUE(std::isnan(engine.causes.kl_update));
  EXPECT_TRUE(std::isnan(engine.causes.k3_interaction));
  EXPECT_THAT(Sentence(engine), HasSubstr("of old over rollout = 100 % engine "
                                          "and staleness; the update needs "
                                          "current_log_probs. "));
  const Attribution total = AttributionOf(Only(rows, kQ, kC));
  EXPECT_EQ(total.numerator, kC);
  ExpectNear(total.causes.k3, all.k3, 1e-12, "total");
  EXPECT_TRUE(std::isnan(total.causes.k3_engine_staleness));
  EXPECT_TRUE(std::isnan(total.causes.k3_update));
  EXPECT_THAT(Sentence(total), HasSubstr("of current over rollout; its causes "
                                         "need old_log_probs. "));
  const Attribution update = AttributionOf(Only(rows, kO, kC));
  EXPECT_EQ(update.denominator, kO);
  EXPECT_EQ(update.causes.k3_update, all.k3_update);
  EXPECT_TRUE(std::isnan(update.causes.k3_engine_staleness));
  EXPECT_THAT(Sentence(update), HasSubstr("of current over old = the update "
                                          "alone; the rest needs "
                                          "rollout_log_probs. "));
}

// The floor is of rows that the trained version sampled whole.
TEST(Attribution, TheEnginesFloorIsOfFreshRows) {
  const std::vector<Row> rows = DriftingRows(60, 60, 0.2, 13);
  const OwnedBatch owned(rows);
  Batch batch = owned.view();
  std::vector<int32_t> of_positions(static_cast<size_t>(owned.num_positions()));
  std::vector<VersionSpan> spans;
  std::vector<Row> fresh;
  for (int64_t r = 0; r < batch.num_sequences; ++r) {
    const int64_t begin = batch.offsets[r], end = batch.offsets[r + 1];
    // Thirds: fresh, older, and one that changed while it was sampled.
    const int32_t version = r % 3 == 1 ? 6 : 7;
    std::fill(of_positions.begin() + begin, of_positions.begin() + end,
              version);
    const int64_t cut = r % 3 == 2 ? (end - begin) / 2 : 0;
    std::fill_n(of_positions.begin() + begin, cut, 6);
    if (cut > 0) spans.push_back({r, 0, cut, 6});
    spans.push_back({r, cut, end - begin, version});
    const auto& mask = rows[static_cast<size_t>(r)].mask;
    const bool is_mixed =
        std::find(mask.begin(), mask.begin() + cut, 1) != mask.begin() + cut;
    if (version == 7 && !is_mixed)
      fresh.push_back(rows[static_cast<size_t>(r)]);
  }
  const ReferenceAttribution wanted = Reference(fresh);
  PolicyVersions versions = {.trained = 7, .came = true};
  for (const bool by_span : {false, true}) {
    versions.of_positions = by_span ? nullptr : of_positions.data();
    versions.spans = spans.data();
    versions.num_spans = static_cast<int64_t>(spans.size());
    batch.versions = &versions;
    const Attribution read = *Examine(batch, nullptr).attribution;
    int64_t tokens = 0;
    for (const auto& [index, bucket] : wanted.by_length)
      tokens += bucket.tokens;
    ASSERT_GT(tokens, kLeastFresh);
    EXPECT_EQ(read.causes.fresh_tokens, tokens);
    ExpectNear(read.causes.fresh_k3, wanted.engine_staleness, 1e-12, "fresh");
    EXPECT_DOUBLE_EQ(read.causes.k3_engine,
                     read.causes.fresh_k3 / static_cast<double>(tokens) *
                         static_cast<double>(read.tokens));
    EXPECT_THAT(Sentence(read), HasSubstr(" % engine, "));
    EXPECT_THAT(Sentence(read), HasSubstr(" % staleness, "));
  }
}

TEST(Attribution, FewFreshTokensAreNoFloor) {
  const std::vector<Row> rows = DriftingRows(4, 40, 0.2, 13);
  const OwnedBatch owned(rows);
  Batch batch = owned.view();
  const std::vector<int32_t> of_positions(
      static_cast<size_t>(owned.num_positions()), 7);
  const PolicyVersions versions = {
      .trained = 7, .of_positions = of_positions.data(), .came = true};
  batch.versions = &versions;
  const Causes causes = Examine(batch, nullptr).attribution->causes;
  EXPECT_GT(causes.fresh_tokens, 0);
  EXPECT_EQ(causes.fresh_k3, causes.k3_engine_staleness);
  EXPECT_TRUE(std::isnan(causes.k3_engine));
}

// Log ratios of fillers are cut, so that no sum is infinite.
TEST(Attribution, FillersLeaveSumsFinite) {
  const Attribution read = AttributionOf(
      {RowOfTokens({{-9999.0f, -1.0f, -1.0f}, {-1.0f, -1.0f, 3e38f}})});
  EXPECT_NEAR(read.causes.k3_engine_staleness, std::expm1(20.0) - 20.0, 1e-3);
  EXPECT_NEAR(read.causes.k3_update, std::expm1(20.0) - 20.0, 1e-3);
  EXPECT_EQ(read.causes.kl, -40.0);
}

TEST(Attribution, OfEqualLogProbsSaysSo) {
  const Attribution read = AttributionOf({RowOf({0.0f, 0.0f})});
  EXPECT_EQ(read.causes.k3, 0.0);
  EXPECT_EQ(Sentence(read),
            "k3 0 of old over rollout: the log-probs are "
            "equal.");
}

TEST(Attribution, NoTokenHasNone) {
  std::vector<Row> rows = DriftingRows(3, 9, 0.1, 1);
  for (Row& row : rows) row.mask.assign(row.mask.size(), 0);
  EXPECT_FALSE(
      Examine(OwnedBatch(rows).view(), nullptr).attribution.has_value());
}

}  // namespace
}  // namespace counterweight::kernels::doctor
