// Every metric within 1e-3 relative of float64, at spreads from 1e-5 to 2.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "kernels/metrics.h"
#include "tests/testing/backends.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/reference.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using Accuracy = EveryBackend;
using Metric = std::map<std::string, double>;

// The reported metrics, from the sums of a batch.
Metric FromSums(const BatchSums& s) {
  const DriftSummary summary = Summarize(s);
  const auto n = static_cast<double>(s.tokens);
  const auto rows = static_cast<double>(s.nonempty_sequences);
  return {
      {"kl", summary.kl},
      {"k3", summary.k3},
      {"chi2 of tokens", summary.chi2_token},
      {"chi2 of sequences", summary.chi2_sequence},
      {"perplexity ratio - 1", s.drift.ppl_ratio_excess / rows},
      {"perplexity ratio", summary.ppl_ratio},
      {"perplexity", s.drift.numerator_ppl / rows},
      {"deviation of l", summary.log_ratio_std},
      {"mean |l|", s.drift.abs_log_ratio / n},
      {"weight mean", summary.weight_mean},
      {"weight deviation", summary.weight_std},
      {"effective sample size", summary.effective_sample_size},
      {"kept effective sample size",
       SampleShare(s.weight.kept_weight, s.weight.kept_weight_squared,
                   s.tokens)},
      {"mean |p - q|", s.peers.correction.probability.abs_difference / n},
      {"mean (p - q)^2", s.peers.correction.probability.squared_difference / n},
      {"rule k3", s.rules[0].sum / n},
      {"rule mean k3", s.rules[1].row_sum / rows},
      {"rule mean k2", s.rules[2].row_sum / rows}};
}

struct Moments {
  double mean = 0;
  double deviation = 0;  // of the population, in two passes
};

Moments MomentsOf(const std::vector<double>& values) {
  Moments moments;
  const auto n = static_cast<double>(values.size());
  for (double x : values) moments.mean += x / n;
  double variance = 0;
  for (double x : values)
    variance += (x - moments.mean) * (x - moments.mean) / n;
  moments.deviation = std::sqrt(variance);
  return moments;
}

// The same from the reference, and from its weights and log ratios one by one
// where sums might cancel.
Metric FromReference(const CorrectionSpec& spec, const OwnedBatch& batch) {
  const ReferenceResult reference = Reference(spec, batch.view());
  const BatchSums& s = reference.sums;
  std::vector<double> weights, log_ratios;
  const Batch view = batch.view();
  for (int64_t t = 0; t < batch.num_positions(); ++t) {
    if (view.response_mask[t] == 0) continue;
    weights.push_back(reference.weights[t]);
    log_ratios.push_back(DecodeElement(view.tensor(InputRole::kOld), t) -
                         DecodeElement(view.tensor(InputRole::kRollout), t));
  }
  const Moments w = MomentsOf(weights), l = MomentsOf(log_ratios);
  const auto n = static_cast<double>(s.tokens);
  const auto rows = static_cast<double>(s.nonempty_sequences);
  const double kept = s.weight.kept_weight;
  return {
      {"kl", -l.mean},
      {"k3", s.drift.k3 / n},
      {"chi2 of tokens", (2 * s.drift.excess + s.drift.excess_squared) / n},
      {"chi2 of sequences", s.drift.chi2_sequence / rows},
      {"perplexity ratio - 1", s.drift.ppl_ratio_excess / rows},
      {"perplexity ratio", 1 + s.drift.ppl_ratio_excess / rows},
      {"perplexity", s.drift.numerator_ppl / rows},
      {"deviation of l", l.deviation},
      {"mean |l|", s.drift.abs_log_ratio / n},
      {"weight mean", w.mean},
      {"weight deviation", w.deviation},
      {"effective sample size",
       w.mean * w.mean / (w.mean * w.mean + w.deviation * w.deviation)},
      {"kept effective sample size",
       kept * kept / (n * s.weight.kept_weight_squared)},
      {"mean |p - q|", s.peers.correction.probability.abs_difference / n},
      {"mean (p - q)^2", s.peers.correction.probability.squared_difference / n},
      {"rule k3", s.rules[0].sum / n},
      {"rule mean k3", s.rules[1].row_sum / rows},
      {"rule mean k2", s.rules[2].row_sum / rows}};
}

CorrectionSpec SpecOf(Level level) {
  CorrectionSpec spec =
      WithWeightAndRules({.level = level, .aggregate_clamp = 20},
                         {{.estimator = Estimator::kK3, .upper = 1e6},
                          {.estimator = Estimator::kK3,
                           .aggregation = Aggregation::kMean,
                           .upper = 1e6},
                          {.estimator = Estimator::kK2,
                           .aggregation = Aggregation::kMean,
                           .upper = 1e6}});
  spec.peer_sums = true;
  return spec;
}

TEST_P(Accuracy, OfEveryMetricAtEverySpread) {
  Random random(7);
  for (double spread : {1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1.0, 2.0}) {
    std::vector<int64_t> lengths;
    for (int i = 0; i < 40; ++i) lengths.push_back(random.Integer(1, 900));
    const OwnedBatch batch(RandomRows(random, lengths, {.spread = spread}));
    for (Level level :
         {Level::kToken, Level::kSequence, Level::kGeometric, Level::kPrefix}) {
      const Metric actual = FromSums(Correct(SpecOf(level), batch).sums());
      for (const auto& [name, expected] : FromReference(SpecOf(level), batch))
        // Equal numbers deviate by the rounding of their mean.
        EXPECT_NEAR(actual.at(name), expected,
                    1e-3 * std::fabs(expected) + 1e-13)
            << name << ", level " << Name(level) << ", spread " << spread;
    }
  }
}

// Rows with log ratios that share an offset, as of another temperature.
OwnedBatch OffsetBatch(Random& random, double offset, double spread) {
  std::vector<Row> rows;
  for (int i = 0; i < 16; ++i) {
    Row row = RandomRow(random, random.Integer(1, 600));
    for (size_t t = 0; t < row.mask.size(); ++t) {
      const double mu = random.Uniform(-3, -0.1);
      row[InputRole::kRollout][t] = static_cast<float>(mu);
      row[InputRole::kOld][t] =
          static_cast<float>(mu + offset + spread * random.Normal());
    }
    rows.push_back(row);
  }
  return OwnedBatch(rows);
}

TEST_P(Accuracy, OfDeviationsBesideAnyMean) {
  Random random(8);
  for (const double offset :
       {0.0, 1e-3, 0.1, -0.1, 0.5, 2.0, -2.0, 10.0, -10.0}) {
    for (const double spread : {1e-5, 1e-4, 1e-2, 0.5, 2.0}) {
      const OwnedBatch batch = OffsetBatch(random, offset, spread);
      for (const Level level :
           {Level::kToken, Level::kGeometric, Level::kPrefix}) {
        // Means of many tokens have smaller spreads than l.
        if (level != Level::kToken && spread < 1e-3) continue;
        CorrectionSpec spec = WithWeightAndRules({.level = level}, {{}});
        spec.peer_sums = true;
        const BatchSums sums = Correct(spec, batch).sums();
        const Metric actual = FromSums(sums);
        const Metric expected = FromReference(spec, batch);
        const auto n = static_cast<double>(sums.tokens);
        const PeerRuleSums& rule = sums.peers.correction.rules[0];
        const double mean = rule.clamped / n;
        const double of_rule =
            std::sqrt(rule.clamped_squared / n - mean * mean);
        const double l = expected.at("deviation of l");
        const double w = expected.at("weight deviation");
        EXPECT_NEAR(actual.at("deviation of l"), l, 1e-3 * l)
            << offset << " +- " << spread;
        // Rules and weights read l as float32, in steps of 1e-6 at 10 nats.
        if (std::fabs(offset) > 8 && spread < 1e-4) continue;
        EXPECT_NEAR(of_rule, l, 1e-3 * l) << offset << " +- " << spread;
        EXPECT_NEAR(actual.at("weight deviation"), w, 1e-3 * w)
            << Name(level) << ", " << offset << " +- " << spread;
      }
    }
  }
}

TEST_P(Accuracy, EqualNumbersDoNotDeviate) {
  for (const float l : {0.3f, -0.7f, 1.9f, 11.0f, -9.0f}) {
    const OwnedBatch batch(
        {RowOf(std::vector<float>(1000, l)), RowOf(std::vector<float>(77, l))});
    for (const Level level :
         {Level::kToken, Level::kSequence, Level::kGeometric, Level::kPrefix}) {
      for (const double upper : {0.2, 1.7, kUnbounded}) {
        WeightSpec weight = {
            .level = level, .aggregate_clamp = 20, .upper = upper};
        if (upper != kUnbounded) weight.bound = Bound::kTruncate;
        const DriftSummary summary =
            Summarize(Correct(WithWeight(weight), batch).sums());
        EXPECT_EQ(summary.log_ratio_std, 0) << l;
        if (level == Level::kSequence && upper == kUnbounded) continue;
        EXPECT_EQ(summary.weight_std, 0) << l << ", " << Name(level);
      }
    }
  }
}

TEST_P(Accuracy, OfNumbersNearOne) {
  for (float l : {1e-3f, 1e-4f, -1e-5f}) {
    const double exact = l;
    const Corrected corrected =
        Correct(WithWeight({.level = Level::kToken}), OwnedBatch({RowOf({l})}));
    EXPECT_FLOAT_EQ(corrected.weights[0], static_cast<float>(std::exp(exact)));
    EXPECT_NEAR(corrected.sums().weight.excess / std::expm1(exact), 1, 1e-6);
    EXPECT_NEAR(corrected.sums().drift.k3 / (std::expm1(exact) - exact), 1,
                1e-5);
  }
}

TEST_P(Accuracy, OfWeightsNearZero) {
  // At small spreads w - 1 has few bits of w.
  const CorrectionSpec spec = WithWeight({.level = Level::kToken});
  for (float l : {-3.0f, -7.0f, -14.0f, -25.0f}) {
    const OwnedBatch batch({RowOf({l, l + 1})});
    const double low = std::exp(static_cast<double>(l));
    const double high = low * std::exp(1.0);
    const DriftSummary summary = Summarize(Correct(spec, batch).sums());
    EXPECT_NEAR(summary.weight_mean / ((low + high) / 2), 1, 1e-3) << l;
    EXPECT_NEAR(summary.weight_std / ((high - low) / 2), 1, 1e-3) << l;
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(Accuracy);

}  // namespace
}  // namespace counterweight::kernels
