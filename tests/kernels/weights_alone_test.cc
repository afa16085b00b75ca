// Weights by token and nothing else. The CPU has a walk of its own for them;
// with metrics it takes the other one, and both must give the same bytes.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/testing/backends.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/sanitized.h"

namespace counterweight::kernels {
namespace {

CorrectionSpec TokenTis(NonFinitePolicy policy) {
  CorrectionSpec spec;
  spec.weight.level = Level::kToken;
  spec.weight.upper = 1.5;
  spec.non_finite = policy;
  return spec;
}

struct Found {
  CorrectResult result;
  std::vector<float> weights;
  std::vector<uint8_t> keep_mask;
};

class WeightsAlone : public EveryBackend {
 protected:
  // Without reasons, which only the other walk has.
  Found Run(CorrectionSpec spec, const Batch& batch, bool metrics) {
    const auto positions =
        static_cast<size_t>(batch.offsets[batch.num_sequences]);
    Found found = {{},
                   std::vector<float>(positions, -1.0f),
                   std::vector<uint8_t>(positions, 0xa5)};
    spec.metrics = metrics;
    Outputs outputs;
    outputs.weights = found.weights.data();
    outputs.keep_mask = found.keep_mask.data();
    found.result = corrector_->Correct(spec, batch, outputs);
    return found;
  }

  void ExpectTheSame(const CorrectionSpec& spec, const Batch& batch) {
    const Found with = Run(spec, batch, /*metrics=*/true);
    const Found without = Run(spec, batch, /*metrics=*/false);
    ASSERT_EQ(without.result.status, with.result.status);
    const BatchSums& a = without.result.sums;
    const BatchSums& b = with.result.sums;
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.kept_tokens, b.kept_tokens);
    EXPECT_EQ(a.non_finite_tokens, b.non_finite_tokens);
    EXPECT_EQ(a.positive_log_probs, b.positive_log_probs);
    if (with.result.status != CorrectStatus::kOk) return;
    EXPECT_EQ(without.keep_mask, with.keep_mask);
    // The bits: -0 is not 0.
    EXPECT_EQ(std::memcmp(without.weights.data(), with.weights.data(),
                          with.weights.size() * sizeof(float)),
              0);
  }
};

// A spread of 300 makes weights of 0 and of the bound alone.
TEST_P(WeightsAlone, AreThoseBesideMetrics) {
  std::vector<int64_t> lengths = {1, 0, 255, 256, 257, 1024, 4097, 512};
  if (!kSanitized) lengths.insert(lengths.end(), {13000, 70000, 300});
  for (const double spread : {1e-3, 0.3, 300.0}) {
    for (const double non_finite : {0.0, 1e-3}) {
      for (const double highest : {0.0, 1.0}) {
        Random random(1);
        const std::vector<Row> rows = RandomRows(
            random, lengths,
            {.spread = spread, .non_finite = non_finite, .highest = highest});
        const OwnedBatch full(rows);
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          const OwnedBatch batch(rows, {.dtype = dtype});
          // The two log-probs may have two dtypes.
          Batch mixed = batch.view();
          const auto rollout = static_cast<size_t>(InputRole::kRollout);
          mixed.tensors[rollout] = full.view().tensors[rollout];
          for (const NonFinitePolicy policy :
               {NonFinitePolicy::kReject, NonFinitePolicy::kDrop,
                NonFinitePolicy::kNeutralize}) {
            SCOPED_TRACE(spread);
            ExpectTheSame(TokenTis(policy), batch.view());
            ExpectTheSame(TokenTis(policy), mixed);
          }
        }
      }
    }
  }
}

// A block that is not the first, and has one token that the phases must see.
TEST_P(WeightsAlone, OneTokenOfABlockIsCounted) {
  Random random(2);
  std::vector<Row> rows =
      RandomRows(random, {1024, 2048}, {.masked = 0.0, .highest = 0.0});
  rows[1][InputRole::kOld][700] = 0.25f;
  rows[1][InputRole::kRollout][1301] = std::numeric_limits<float>::infinity();
  const Found found =
      Run(TokenTis(NonFinitePolicy::kDrop), OwnedBatch(rows).view(),
          /*metrics=*/false);
  const BatchSums& sums = found.result.sums;
  EXPECT_EQ(sums.positive_log_probs, 1);
  EXPECT_EQ(sums.non_finite_tokens, 1);
  EXPECT_EQ(sums.tokens, 3071);
  EXPECT_EQ(found.keep_mask[1024 + 1301], 0);
  EXPECT_EQ(found.weights[1024 + 1301], 0.0f);
  EXPECT_EQ(found.keep_mask[1024 + 700], 1);
}

COUNTERWEIGHT_ON_EVERY_BACKEND(WeightsAlone);

}  // namespace
}  // namespace counterweight::kernels
