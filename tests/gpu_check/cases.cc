#include "tests/gpu_check/cases.h"

#include <algorithm>
#include <string>

#include "kernels/methods.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

constexpr int64_t kMaxTokensOfRandomSpecs = 200'000;
constexpr int kRandomSpecs = 24;
constexpr int kRandomLosses = 48;

}  // namespace

std::vector<std::vector<int64_t>> CheckShapes(CheckSize size) {
  std::vector<std::vector<int64_t>> shapes = {
      {1},
      {0},
      {0, 1, 0, 31, 32, 33, 0, 255, 256, 257, 0},
      {4097, 1},
  };
  if (size == CheckSize::kEdges) return shapes;
  shapes.push_back({4095, 4096, 4097, 8192, 8193, 1});
  shapes.push_back({70'000, 3, 0, 20'000});
  shapes.emplace_back(257, 100);
  if (size == CheckSize::kQuick) return shapes;
  shapes.push_back({1'000'000});
  shapes.emplace_back(100'000, 20);
  shapes.emplace_back(512, 4096);
  return shapes;
}

std::vector<CheckCase> CheckCases(const std::vector<int64_t>& lengths,
                                  uint64_t round) {
  Random random(round * 1000 + lengths.size());
  // From healthy to collapsed runs.
  const double spreads[] = {1e-4, 0.02, 0.3, 2.0};
  const double spread = spreads[round % 4];
  const Layout layout{.dtype = static_cast<DType>(round % 3)};
  RowShape shape{.spread = spread, .highest = -1e-3, .one_advantage = 0.3};
  OwnedBatch clean(RandomRows(random, lengths, shape), layout);
  SetRandomGroups(random, clean);
  shape.non_finite = 0.01;
  OwnedBatch spoilt(RandomRows(random, lengths, shape), layout);
  SetRandomGroups(random, spoilt);
  std::vector<CheckCase> cases;
  for (const Method& method : Methods()) {
    std::vector<SpecViolation> violations;
    CorrectionSpec spec = MakeSpec(method, {}, &violations);
    cases.push_back({std::string(method.name), spec, clean});
    spec.weight.normalize = spec.weight.level != Level::kNone;
    spec.probability_metrics = true;
    cases.push_back({std::string(method.name) + "+", spec, clean});
  }
  for (Surrogate surrogate : Surrogates()) {
    const CorrectionSpec spec = WithLoss(BusyLoss(surrogate, spread));
    cases.push_back({Describe(spec.loss), spec, clean});
  }
  if (clean.num_positions() > kMaxTokensOfRandomSpecs) return cases;
  for (int i = 0; i < kRandomSpecs; ++i) {
    CorrectionSpec spec = RandomSpec(random, spread);
    spec.non_finite =
        i % 2 == 0 ? NonFinitePolicy::kDrop : NonFinitePolicy::kNeutralize;
    cases.push_back({ToString(spec), spec, spoilt});
  }
  const int64_t longest =
      lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  for (int i = 0; i < kRandomLosses; ++i) {
    CorrectionSpec spec = RandomLossSpec(random, spread, longest);
    spec.non_finite =
        i % 2 == 0 ? NonFinitePolicy::kDrop : NonFinitePolicy::kNeutralize;
    cases.push_back(
        {ToString(spec) + "; " + Describe(spec.loss), spec, spoilt});
  }
  return cases;
}

}  // namespace counterweight::kernels
