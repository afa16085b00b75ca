// Sums for other systems are those that a spec requests, and change nothing
// else.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/sums_fields.h"

namespace counterweight::kernels {
namespace {

class PeerSumsOnRequest : public EveryBackend {};

bool StartsWith(const std::string& name, const char* prefix) {
  return name.rfind(prefix, 0) == 0;
}

// Fields of `sums` that a spec without peers' sums has too.
std::vector<SumsField> Others(const BatchSums& sums) {
  std::vector<SumsField> others;
  for (const SumsField& field : Fields(sums)) {
    const bool is_padding = StartsWith(field.name, "peers.loss.padding");
    if (StartsWith(field.name, "peers.") && !is_padding) continue;
    others.push_back(field);
  }
  return others;
}

void ExpectNothingForPeers(const BatchSums& sums) {
  for (const SumsField& field : Fields(sums)) {
    if (!StartsWith(field.name, "peers.") ||
        StartsWith(field.name, "peers.loss.padding")) {
      continue;
    }
    double nothing = 0;
    if (field.fold == Fold::kMin) nothing = kUnbounded;
    if (field.fold == Fold::kMax &&
        field.name != "peers.probability.max_difference") {
      nothing = -kUnbounded;
    }
    EXPECT_EQ(field.value, nothing) << field.name;
  }
}

TEST_P(PeerSumsOnRequest, ChangeNoOtherBit) {
  constexpr double kSpread = 0.1;
  Random random(31);
  int served = 0;
  for (int i = 0; i < 60; ++i) {
    CorrectionSpec spec = RandomLossSpec(random, kSpread, 70);
    OwnedBatch batch(
        RandomRows(random, {1, 70, 0, 33}, {.spread = kSpread, .masked = 0.2}));
    SetRandomGroups(random, batch);
    spec.peer_sums = spec.loss.peer_sums = true;
    const Corrected with = Correct(spec, batch);
    spec.peer_sums = spec.loss.peer_sums = false;
    const Corrected without = Correct(spec, batch);
    ASSERT_EQ(with.result.status, CorrectStatus::kOk);
    EXPECT_TRUE(SameOutputs(with, without)) << Describe(spec.loss);
    const std::vector<SumsField> expected = Others(with.sums());
    const std::vector<SumsField> found = Others(without.sums());
    for (size_t f = 0; f < expected.size(); ++f) {
      EXPECT_EQ(found[f].value, expected[f].value) << expected[f].name;
    }
    ExpectNothingForPeers(without.sums());
    served += with.sums().peers.correction.numerator_log_ppl > 0.0;
  }
  EXPECT_GT(served, 50);
}

COUNTERWEIGHT_ON_EVERY_BACKEND(PeerSumsOnRequest);

}  // namespace
}  // namespace counterweight::kernels
