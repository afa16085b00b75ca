#include "tests/gpu_check/cases.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "kernels/methods.h"
#include "tests/gpu_check/systematic_specs.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

constexpr int64_t kMaxTokensOfRandomSpecs = 200'000;
constexpr int kRandomSpecs = 24;
constexpr int kRandomLosses = 48;

using SharedBatch = std::shared_ptr<const OwnedBatch>;

// Content of masked positions must have no effect.
void SpoilMasked(std::vector<Row>& rows) {
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
  for (Row& row : rows) {
    for (std::vector<float>& values : row.values) {
      for (size_t i = 0; i < values.size(); ++i) {
        if (row.mask[i] == 0) values[i] = kBad[i % 3];
      }
    }
  }
}

// Only a walk with CorrectionSpec::unknown_rollout accepts such rows.
void HideRollout(Random& random, std::vector<Row>& rows) {
  for (Row& row : rows) {
    for (float& x : row[InputRole::kRollout]) {
      if (random.Chance(0.1)) x = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

struct Batches {
  SharedBatch clean;
  SharedBatch masked;   // NaN and infinities at masked positions
  SharedBatch spoilt;   // and at counted ones
  SharedBatch unknown;  // NaN for a tenth of the rollout log-probs
};

Batches MakeBatches(const std::vector<int64_t>& lengths, uint64_t round,
                    double spread, Random& random) {
  const Layout layout{.dtype = static_cast<DType>(round % kRoundsOfDTypes),
                      .misalignment = static_cast<int>(round % 2)};
  RowShape shape{.spread = spread, .highest = -1e-3, .one_advantage = 0.3};
  const auto share = [&](const std::vector<Row>& rows) {
    auto batch = std::make_shared<OwnedBatch>(rows, layout);
    SetRandomGroups(random, *batch);
    return batch;
  };
  Batches batches;
  batches.clean = share(RandomRows(random, lengths, shape));
  std::vector<Row> rows = RandomRows(random, lengths, shape);
  SpoilMasked(rows);
  batches.masked = share(rows);
  shape.non_finite = 0.01;
  batches.spoilt = share(RandomRows(random, lengths, shape));
  shape.non_finite = 0;
  rows = RandomRows(random, lengths, shape);
  HideRollout(random, rows);
  batches.unknown = share(rows);
  return batches;
}

void AddMethods(const Batches& batches, std::vector<CheckCase>* cases) {
  for (const Method& method : Methods()) {
    const std::string name(method.name);
    std::vector<ParameterViolation> violations;
    CorrectionSpec spec = MakeSpec(method, {}, &violations);
    cases->push_back({name, spec, batches.masked});
    cases->push_back(
        {name + ", usual outputs", spec, batches.clean, WantedOutputs::kUsual});
    // Reasons alone: what makes them must not depend on the other outputs.
    cases->push_back({name + ", reasons of sequences", spec, batches.masked,
                      WantedOutputs::kSequenceReasons});
    // REJECT: its report is an answer too.
    cases->push_back({name + ", rejected", spec, batches.spoilt});
    spec.unknown_rollout = true;
    cases->push_back({name + ", unknown tokens", spec, batches.unknown});
    spec.unknown_rollout = false;
    spec.weight.normalize = spec.weight.level != Level::kNone;
    spec.peer_sums = true;
    spec.loss.peer_sums = true;
    cases->push_back({name + "+", spec, batches.clean});
    spec = MakeSpec(method, {}, &violations);
    spec.metrics = false;
    cases->push_back({name + ", no metrics", spec, batches.masked});
    cases->push_back({name + ", no metrics, usual outputs", spec, batches.clean,
                      WantedOutputs::kUsual});
  }
}

void AddSystematic(const Batches& batches, double spread,
                   std::vector<CheckCase>* cases) {
  const auto add = [&](std::vector<NamedSpec> specs) {
    for (NamedSpec& s : specs) {
      // Each selection of outputs has its turn.
      const auto wanted =
          static_cast<WantedOutputs>(cases->size() % kNumWantedOutputs);
      cases->push_back({std::move(s.name), s.spec, batches.masked, wanted});
    }
  };
  add(EveryStatistic(spread));
  add(EveryWeight(spread));
  add(EverySurrogate(spread));
}

void AddRandom(const Batches& batches, double spread, int64_t longest,
               Random& random, std::vector<CheckCase>* cases) {
  const auto policy = [](int i) {
    return i % 2 == 0 ? NonFinitePolicy::kDrop : NonFinitePolicy::kNeutralize;
  };
  for (int i = 0; i < kRandomSpecs; ++i) {
    CorrectionSpec spec = RandomSpec(random, spread);
    spec.non_finite = policy(i);
    spec.metrics = i % 4 != 3;
    if (i % 4 == 1) spec = WithTurns(random, spec);
    cases->push_back({ToString(spec), spec, batches.spoilt});
  }
  for (int i = 0; i < kRandomLosses; ++i) {
    CorrectionSpec spec = RandomLossSpec(random, spread, longest);
    spec.non_finite = policy(i);
    spec.metrics = i % 4 != 3;
    cases->push_back(
        {ToString(spec) + "; " + Describe(spec.loss), spec, batches.spoilt});
  }
}

}  // namespace

std::vector<std::vector<int64_t>> CheckShapes(CheckSize size) {
  if (size == CheckSize::kSegments) return {{4097, 1}, {8193, 4096, 4097}};
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
  constexpr double kSpreads[] = {0.02, 0.3, 1e-4, 2.0};
  const double spread = kSpreads[(round + lengths.size()) % 4];
  const Batches batches = MakeBatches(lengths, round, spread, random);
  std::vector<CheckCase> cases;
  AddMethods(batches, &cases);
  AddSystematic(batches, spread, &cases);
  if (batches.clean->num_positions() > kMaxTokensOfRandomSpecs) return cases;
  const int64_t longest =
      lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  AddRandom(batches, spread, longest, random, &cases);
  return cases;
}

}  // namespace counterweight::kernels
