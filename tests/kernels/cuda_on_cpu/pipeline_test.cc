// The CUDA backend on the fake runtime gives the CPU backend's bytes for every
// order of streams, place of memory and arrival of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "kernels/cuda/batch_blocks.h"
#include "kernels/walk/make_plan.h"
#include "kernels/walk/record_columns.h"
#include "tests/gpu_check/compare.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/placed_run.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

OwnedBatch RandomBatch(Random& random, bool spoilt = false) {
  OwnedBatch batch(
      RandomRows(random, {40, 0, 500, 1, 300, 250, 77, 4100, 0, 0, 12, 290, 40},
                 {.spread = 0.2, .non_finite = spoilt ? 0.01 : 0.0}));
  SetRandomGroups(random, batch);
  return batch;
}

std::vector<int64_t> RandomArrivals(Random& random, int64_t rows) {
  std::vector<int64_t> arrivals;
  for (int64_t arrived = 0; arrived < rows;) {
    arrived = std::min(rows, arrived + random.Integer(1, 4));
    arrivals.push_back(arrived);
  }
  // Finish alone announces the last rows.
  if (random.Chance(0.5)) arrivals.pop_back();
  return arrivals;
}

class Pipeline : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::ForgetErrors();
    fake_cuda::SetSeed(0);
  }

  // RunCorrector fills unwritten outputs, such as the gradient of a spec
  // without a loss.
  Corrected Expected(const CorrectionSpec& spec, const OwnedBatch& batch) {
    Corrected expected = RunCorrector(*cpu_, spec, batch);
    if (spec.loss.surrogate == Surrogate::kNone) expected.gradient.clear();
    return expected;
  }

  void ExpectCpuBytes(uint64_t seed, const CorrectionSpec& spec,
                      const OwnedBatch& batch, const PlacedRun& run) {
    fake_cuda::SetSeed(seed);
    EXPECT_EQ(FirstDifference(Expected(spec, batch),
                              RunPlaced(*cuda_, spec, batch, run)),
              "")
        << "seed " << seed << ", " << ToString(spec) << "; "
        << Describe(spec.loss) << ", inputs " << static_cast<int>(run.inputs)
        << ", outputs " << static_cast<int>(run.outputs) << ", "
        << run.arrivals.size() << " arrivals";
  }

  PlacedRun RandomPlaces(Random& random, int64_t rows) {
    PlacedRun run;
    run.inputs = static_cast<Where>(random.Integer(0, 3));
    run.outputs = static_cast<Where>(random.Integer(0, 3));
    const bool host_writes =
        run.inputs == Where::kPageable || run.inputs == Where::kPinned;
    if (host_writes && random.Chance(0.6)) {
      run.arrivals = RandomArrivals(random, rows);
      run.mask_first = random.Chance(0.5);
    }
    return run;
  }

  const std::unique_ptr<Corrector> cpu_ = MakeCpuCorrector(1);
  const std::unique_ptr<Corrector> cuda_ = MakeFakeCuda(kSmallOptions);
};

TEST_F(Pipeline, OfRandomSpecs) {
  Random random(1);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CorrectionSpec spec = RandomSpec(random, 0.2);
    spec.weight.normalize =
        spec.weight.level != Level::kNone && random.Chance(0.5);
    const bool spoilt = random.Chance(0.3);
    spec.non_finite =
        spoilt ? NonFinitePolicy::kDrop : NonFinitePolicy::kReject;
    const OwnedBatch batch = RandomBatch(random, spoilt);
    ExpectCpuBytes(seed, spec, batch,
                   RandomPlaces(random, batch.num_sequences()));
  }
}

TEST_F(Pipeline, OfRandomLosses) {
  Random random(2);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CorrectionSpec spec = RandomLossSpec(random, 0.2, 4100);
    const bool spoilt = random.Chance(0.3);
    spec.non_finite =
        spoilt ? NonFinitePolicy::kDrop : NonFinitePolicy::kNeutralize;
    const OwnedBatch batch = RandomBatch(random, spoilt);
    ExpectCpuBytes(seed, spec, batch,
                   RandomPlaces(random, batch.num_sequences()));
  }
}

// Plans that first read the whole batch, once or three times.
TEST_F(Pipeline, OfLossesThatKnowTheBatch) {
  Random random(3);
  for (const Surrogate surrogate :
       {Surrogate::kKlCov, Surrogate::kClipCov, Surrogate::kGeoMean,
        Surrogate::kPpoClip, Surrogate::kVespo}) {
    for (const NonFinitePolicy policy :
         {NonFinitePolicy::kNeutralize, NonFinitePolicy::kDrop}) {
      CorrectionSpec spec = WithLoss(BusyLoss(surrogate, 0.2));
      spec.non_finite = policy;
      const OwnedBatch batch = RandomBatch(random, true);
      const auto seed = static_cast<uint64_t>(random.Integer(1, 1000));
      ExpectCpuBytes(seed, spec, batch,
                     RandomPlaces(random, batch.num_sequences()));
    }
  }
}

// Every temper of the fake runtime with a spec that uses every feature.
TEST_F(Pipeline, InEveryOrder) {
  Random random(4);
  CorrectionSpec spec = BusySpec();
  spec.weight.normalize = true;
  const OwnedBatch batch = RandomBatch(random);
  for (uint64_t seed = 0; seed < 12; ++seed) {
    for (const Where where : {Where::kPageable, Where::kPinned}) {
      ExpectCpuBytes(seed, spec, batch, {where, where});
      ExpectCpuBytes(
          seed, spec, batch,
          {where, where, RandomArrivals(random, batch.num_sequences()), true});
    }
  }
}

TEST_F(Pipeline, OfShapesAtTheEdge) {
  Random random(5);
  const std::vector<std::vector<int64_t>> shapes = {
      {}, {0}, {0, 0, 0}, {1}, {300}, {301, 299}, {0, 4097}};
  for (const std::vector<int64_t>& lengths : shapes) {
    for (const bool has_loss : {false, true}) {
      const CorrectionSpec spec =
          has_loss ? WithLoss(BusyLoss(Surrogate::kPpoClip, 0.2)) : BusySpec();
      const OwnedBatch batch(RandomRows(random, lengths, {.spread = 0.2}));
      ExpectCpuBytes(7, spec, batch, {});
      ExpectCpuBytes(8, spec, batch, {Where::kPinned, Where::kPinned});
    }
  }
}

// Rows fold in their warps only where every block begins with a group of them.
TEST_F(Pipeline, OfBlocksThatBeginWithAGroupOfRows) {
  Random random(8);
  for (const int64_t rows_of_block : {31, 32, 64}) {
    CudaOptions options = kSmallOptions;
    options.block_positions = rows_of_block * kPositionsOfShortRow;
    const std::unique_ptr<Corrector> cuda = MakeFakeCuda(options);
    for (const bool has_loss : {false, true}) {
      const CorrectionSpec spec =
          has_loss ? WithLoss(BusyLoss(Surrogate::kPpoClip, 0.2)) : BusySpec();
      const OwnedBatch batch(
          RandomRows(random, std::vector<int64_t>(150, 20), {.spread = 0.2}));
      EXPECT_EQ(FirstDifference(Expected(spec, batch),
                                RunPlaced(*cuda, spec, batch, {})),
                "")
          << rows_of_block << " rows";
    }
  }
}

// A block with a row of several segments may take another schedule than the
// others, in which a loss pass adds to the rows' records.
TEST_F(Pipeline, OfBlocksWithOtherSchedules) {
  Random random(10);
  CudaOptions options = kSmallOptions;
  options.block_positions = 32 * kPositionsOfShortRow;
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(options);
  // Running means know a row's end in one walk only if it is one segment.
  CorrectionSpec spec;
  spec.weight = {.level = Level::kPrefix, .bound = Bound::kTruncate};
  spec.weight.upper = 2.0;
  spec.loss.surrogate = Surrogate::kPpoClip;
  const Plan plan = MakePlan(spec);
  ASSERT_NE(plan.single_pass, plan.in_order_single_pass);
  for (const size_t long_row : {31, 95}) {
    std::vector<int64_t> lengths(96, 20);
    lengths[long_row] = 4200;
    const OwnedBatch batch(RandomRows(random, lengths, {.spread = 0.2}));
    EXPECT_EQ(FirstDifference(Expected(spec, batch),
                              RunPlaced(*cuda, spec, batch, {})),
              "")
        << "long row " << long_row;
  }
}

// Each launch costs a micro-batch as much as its rows.
TEST_F(Pipeline, LaunchesTwoKernelsForAMicroBatch) {
  Random random(9);
  CorrectionSpec spec;
  spec.weight = {.level = Level::kToken, .bound = Bound::kTruncate};
  spec.weight.upper = 2.0;
  const OwnedBatch batch(
      RandomRows(random, std::vector<int64_t>(8, 60), {.spread = 0.2}));
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(CudaOptions{});
  fake_cuda::StartTrace();
  Corrected actual =
      RunPlaced(*cuda, spec, batch, {Where::kDevice, Where::kDevice});
  int kernels = 0;
  for (const fake_cuda::TracedOperation& operation : fake_cuda::StopTrace()) {
    kernels += operation.traffic == fake_cuda::Traffic::kKernel ? 1 : 0;
  }
  // RunPlaced wants the reasons of sequences, which are zeroed and narrowed.
  EXPECT_EQ(kernels, 2 + 2);
  EXPECT_EQ(FirstDifference(Expected(spec, batch), actual), "");
}

TEST_F(Pipeline, FindsTheFirstNonFiniteNumber) {
  Random random(6);
  CorrectionSpec spec = BusySpec();
  spec.non_finite = NonFinitePolicy::kReject;
  const OwnedBatch batch = RandomBatch(random, true);
  const Corrected expected = Expected(spec, batch);
  fake_cuda::SetSeed(9);
  const Corrected actual = RunPlaced(*cuda_, spec, batch, {});
  ASSERT_EQ(expected.result.status, CorrectStatus::kNonFinite);
  ASSERT_EQ(actual.result.status, CorrectStatus::kNonFinite);
  EXPECT_EQ(actual.result.non_finite.sequence,
            expected.result.non_finite.sequence);
  EXPECT_EQ(actual.result.non_finite.token, expected.result.non_finite.token);
}

// Tensors and outputs on the device are used in place.
TEST_F(Pipeline, CopiesNothingThatIsOnTheDevice) {
  Random random(7);
  CorrectionSpec spec = BusySpec();
  const OwnedBatch batch = RandomBatch(random);
  fake_cuda::SetSeed(3);
  fake_cuda::StartTrace();
  RunPlaced(*cuda_, spec, batch, {Where::kDevice, Where::kDevice});
  size_t up = 0;
  size_t down = 0;
  for (const fake_cuda::TracedOperation& operation : fake_cuda::StopTrace()) {
    EXPECT_NE(operation.traffic, fake_cuda::Traffic::kOnDevice);
    up += operation.traffic == fake_cuda::Traffic::kToDevice ? operation.bytes
                                                             : 0;
    down +=
        operation.traffic == fake_cuda::Traffic::kToHost ? operation.bytes : 0;
  }
  // The copies are the mask, the rows' boundaries, and the sums.
  const auto positions = static_cast<size_t>(batch.num_positions());
  EXPECT_LT(up, positions + 2000);
  const auto sums = static_cast<size_t>(ColumnsOfRows(MakePlan(spec)).totals) *
                    sizeof(double);
  EXPECT_LT(down, sums + 500);
}

// Arrived rows are computed and answered before the others arrive.
TEST_F(Pipeline, ComputesWhatHasArrived) {
  const int64_t rows = 10;
  std::vector<float> log_ratios(300, 0.1f);
  const OwnedBatch batch(std::vector<Row>(rows, RowOf(log_ratios)));
  auto* weights = static_cast<float*>(cuda_->AllocateHost(
      static_cast<size_t>(batch.num_positions()) * sizeof(float)));
  Outputs outputs;
  outputs.weights = weights;
  const CorrectionSpec spec = WithWeight(
      {.level = Level::kToken, .bound = Bound::kTruncate, .upper = 1.05});
  const std::unique_ptr<CorrectRun> run =
      cuda_->Begin(spec, batch.view(), outputs, nullptr);
  for (int64_t arrived = 1; arrived <= rows; ++arrived) {
    weights[300 * arrived - 1] = 0.0f;
    run->Advance(arrived, true);
    EXPECT_EQ(weights[300 * arrived - 1], 1.05f);
  }
  EXPECT_EQ(run->Finish().status, CorrectStatus::kOk);
  cuda_->FreeHost(weights);
}

TEST_F(Pipeline, StopsBetweenBlocks) {
  Random random(8);
  const OwnedBatch batch = RandomBatch(random);
  CorrectionSpec spec = BusySpec();
  int asked = 0;
  const auto count = [&] {
    ++asked;
    return false;
  };
  RunPlaced(*cuda_, spec, batch, {.stop = count});
  ASSERT_GE(asked, 5);
  const int questions = asked;
  for (int last = 1; last <= questions; ++last) {
    fake_cuda::SetSeed(static_cast<uint64_t>(last));
    asked = 0;
    const auto stop = [&] { return ++asked >= last; };
    EXPECT_EQ(RunPlaced(*cuda_, spec, batch, {.stop = stop}).result.status,
              CorrectStatus::kStopped);
  }
  EXPECT_EQ(fake_cuda::Alive().device_allocations, 0);
  ExpectCpuBytes(1, spec, batch, {});
}

// A client disappears: the run is destroyed with transfers in flight, and the
// memory right after it.
TEST_F(Pipeline, LetsGoOfMemoryWhenTheRunEnds) {
  Random random(9);
  const OwnedBatch batch = RandomBatch(random);
  const CorrectionSpec spec = BusySpec();
  for (uint64_t seed = 1; seed < 12; ++seed) {
    fake_cuda::SetSeed(seed);
    auto* weights = static_cast<float*>(cuda_->AllocateHost(
        static_cast<size_t>(batch.num_positions()) * sizeof(float)));
    Outputs outputs;
    outputs.weights = weights;
    {
      const std::unique_ptr<CorrectRun> run =
          cuda_->Begin(spec, batch.view(), outputs, nullptr);
      run->Advance(5, true);
    }
    EXPECT_EQ(fake_cuda::Alive().queued_operations, 0);
    EXPECT_EQ(fake_cuda::Alive().device_allocations, 0);
    cuda_->FreeHost(weights);
    ExpectCpuBytes(seed, spec, batch, {});
  }
}

}  // namespace
}  // namespace counterweight::kernels
