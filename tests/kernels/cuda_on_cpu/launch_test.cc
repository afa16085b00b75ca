// Shared memory of the walks' blocks: granted once, and never more than the
// device has.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "kernels/cuda/column_layout.h"
#include "kernels/cuda/grid.h"
#include "kernels/walk/make_plan.h"
#include "tests/gpu_check/compare.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/placed_run.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"

namespace counterweight::kernels {
namespace {

constexpr int kHopper = 227 << 10;  // compute capability 9.0, bytes of a block

class LaunchTest : public ::testing::Test {
 protected:
  void SetUp() override { fake_cuda::SetSeed(1); }
  void TearDown() override { fake_cuda::SetSharedMemory(kHopper); }

  // A plan without a shape of its own, with columns that grow with its rules.
  static CorrectionSpec SpecOf(int rules) {
    CorrectionSpec spec = WithLoss(BusyLoss(Surrogate::kPpoClip, 0.1));
    spec.num_rules = rules;
    for (RejectionRule& rule : spec.rules) {
      rule.aggregation = Aggregation::kPrefixMean;
      rule.upper = 1.5;
    }
    spec.weight.level = Level::kPrefix;
    spec.peer_sums = true;
    return spec;
  }

  static int BytesOf(int rules) {
    return MakeColumnLayout(MakePlan(SpecOf(rules)), true, true).bytes * kWarps;
  }

  void ExpectBytesOfTheCpu(Corrector& cuda, int rules) {
    const CorrectionSpec spec = SpecOf(rules);
    EXPECT_EQ(FirstDifference(RunCorrector(*cpu_, spec, batch_),
                              RunPlaced(cuda, spec, batch_, {})),
              "")
        << rules << " rules";
  }

  const std::unique_ptr<Corrector> cpu_ = MakeCpuCorrector(1);
  const OwnedBatch batch_ = [] {
    Random random(1);
    return OwnedBatch(
        RandomRows(random, {40, 0, 300, 7, 5000}, {.spread = 0.2}));
  }();
};

// A limit that one request sets would hold for another one that is about to
// launch.
TEST_F(LaunchTest, ChangesNothingThatOtherRequestsShare) {
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kSmallOptions);
  fake_cuda::ForgetErrors();
  for (const int rules : {kMaxRules, 1}) {
    ASSERT_GT(BytesOf(rules), 48 << 10);
    ExpectBytesOfTheCpu(*cuda, rules);
  }
  EXPECT_EQ(fake_cuda::Calls()["cudaFuncSetAttribute"], 0);
}

TEST_F(LaunchTest, OfPlansOfSeveralSizesAtOnce) {
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kSmallOptions);
  std::vector<std::thread> threads;
  for (const int rules : {1, kMaxRules, 4, 2}) {
    threads.emplace_back([&, rules] { ExpectBytesOfTheCpu(*cuda, rules); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LaunchTest, HasFewerWarpsWhereThereIsLessMemory) {
  // Capabilities 8.6, 8.9 and 12.0, and what every device grants.
  for (const int limit : {99 << 10, 48 << 10}) {
    fake_cuda::SetSharedMemory(limit);
    const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kSmallOptions);
    ASSERT_GT(BytesOf(kMaxRules), limit);
    ExpectBytesOfTheCpu(*cuda, kMaxRules);
    ExpectBytesOfTheCpu(*cuda, 1);
  }
}

}  // namespace
}  // namespace counterweight::kernels
