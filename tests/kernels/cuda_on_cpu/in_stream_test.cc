// Corrections as a part of a trainer's stream: the CPU backend's bytes,
// whatever the order of streams, with nothing but the streams to wait for.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/walk/make_plan.h"
#include "kernels/walk/record_columns.h"
#include "tests/gpu_check/compare.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/placed_run.h"
#include "tests/kernels/cuda_on_cpu/trainer.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

template <class T>
size_t BytesOf(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

// A batch and its outputs, in a trainer's arrays.
class Sent {
 public:
  Sent(Trainer* trainer, const CorrectionSpec& spec, const OwnedBatch& source)
      : trainer_(*trainer), batch(source.view()) {
    const auto positions = static_cast<size_t>(source.num_positions());
    for (TensorView& tensor : batch.tensors) {
      if (tensor.data == nullptr) continue;
      tensor.data = trainer_.Send(
          tensor.data, positions * static_cast<size_t>(SizeOf(tensor.dtype)));
    }
    batch.response_mask = static_cast<const uint8_t*>(
        trainer_.Send(batch.response_mask, positions));
    Place(positions, &answer.weights, &outputs.weights);
    Place(positions, &answer.keep_mask, &outputs.keep_mask);
    Place(positions, &answer.token_reasons, &outputs.token_reasons);
    Place(static_cast<size_t>(source.num_sequences()), &answer.sequence_reasons,
          &outputs.sequence_reasons);
    if (spec.loss.surrogate == Surrogate::kNone) return;
    Place(positions, &answer.gradient, &outputs.gradient);
  }

  // Puts what a trainer does next into its stream, and waits for that alone.
  void Take() {
    Receive(&answer.weights, outputs.weights);
    Receive(&answer.keep_mask, outputs.keep_mask);
    Receive(&answer.token_reasons, outputs.token_reasons);
    Receive(&answer.sequence_reasons, outputs.sequence_reasons);
    Receive(&answer.gradient, outputs.gradient);
    trainer_.Overwrite();
    trainer_.Wait();
  }

 private:
  template <class T>
  void Place(size_t count, std::vector<T>* values, T** place) {
    values->resize(count);
    *place = static_cast<T*>(trainer_.Allocate(BytesOf(*values)));
  }
  template <class T>
  void Receive(std::vector<T>* values, const T* place) {
    if (place == nullptr) return;
    trainer_.Receive(place, values->data(), BytesOf(*values));
  }

  Trainer& trainer_;

 public:
  Batch batch;
  Outputs outputs;
  Corrected answer;
};

class InStream : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::ForgetErrors();
    fake_cuda::SetSeed(0);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }

  static OwnedBatch RandomBatch(Random& random, bool spoilt = false) {
    OwnedBatch batch(RandomRows(
        random, {40, 0, 500, 1, 300, 250, 77, 4100, 0, 0, 12, 290, 40},
        {.spread = 0.2, .non_finite = spoilt ? 0.01 : 0.0}));
    SetRandomGroups(random, batch);
    return batch;
  }

  Corrected Expected(const CorrectionSpec& spec, const OwnedBatch& batch) {
    Corrected expected = RunCorrector(*cpu_, spec, batch);
    if (spec.loss.surrogate == Surrogate::kNone) expected.gradient.clear();
    return expected;
  }

  Corrected Run(Corrector& cuda, const CorrectionSpec& spec,
                const OwnedBatch& batch, bool has_stream = true) {
    Trainer trainer(cuda.Info().devices.front().index, has_stream);
    Sent sent(&trainer, spec, batch);
    sent.answer.result = cuda.BeginInStream(spec, sent.batch, sent.outputs,
                                            nullptr, trainer.stream())
                             ->Finish();
    if (sent.answer.result.status == CorrectStatus::kOk) sent.Take();
    return sent.answer;
  }

  void ExpectCpuBytes(uint64_t seed, const CorrectionSpec& spec,
                      const OwnedBatch& batch, bool has_stream = true) {
    fake_cuda::SetSeed(seed);
    EXPECT_EQ(FirstDifference(Expected(spec, batch),
                              Run(*cuda_, spec, batch, has_stream)),
              "")
        << "seed " << seed << ", " << ToString(spec) << "; "
        << Describe(spec.loss);
  }

  const std::unique_ptr<Corrector> cpu_ = MakeCpuCorrector(1);
  const std::unique_ptr<Corrector> cuda_ = MakeFakeCuda(kSmallOptions);
};

TEST_F(InStream, OfRandomSpecs) {
  Random random(1);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CorrectionSpec spec = RandomSpec(random, 0.2);
    spec.weight.normalize =
        spec.weight.level != Level::kNone && random.Chance(0.5);
    const bool spoilt = random.Chance(0.3);
    spec.non_finite =
        spoilt ? NonFinitePolicy::kDrop : NonFinitePolicy::kReject;
    ExpectCpuBytes(seed, spec, RandomBatch(random, spoilt), seed % 3 != 0);
  }
}

TEST_F(InStream, OfRandomLosses) {
  Random random(2);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CorrectionSpec spec = RandomLossSpec(random, 0.2, 4100);
    const bool spoilt = random.Chance(0.3);
    spec.non_finite =
        spoilt ? NonFinitePolicy::kDrop : NonFinitePolicy::kNeutralize;
    ExpectCpuBytes(seed, spec, RandomBatch(random, spoilt), seed % 3 != 0);
  }
}

// One block with a division by the mean in work when Finish returns, for each
// temper of the fake runtime.
TEST_F(InStream, OfWeightsThatAreDividedLast) {
  Random random(3);
  CorrectionSpec spec = BusySpec();
  spec.weight.normalize = true;
  const OwnedBatch batch(RandomRows(random, {40, 0, 500}, {.spread = 0.2}));
  for (uint64_t seed = 1; seed < 30; ++seed) {
    ExpectCpuBytes(seed, spec, batch);
  }
}

TEST_F(InStream, OfShapesAtTheEdge) {
  Random random(4);
  const std::vector<std::vector<int64_t>> shapes = {{},  {0},        {0, 0, 0},
                                                    {1}, {301, 299}, {0, 4097}};
  for (const std::vector<int64_t>& lengths : shapes) {
    for (const bool has_loss : {false, true}) {
      const CorrectionSpec spec =
          has_loss ? WithLoss(BusyLoss(Surrogate::kPpoClip, 0.2)) : BusySpec();
      ExpectCpuBytes(7, spec,
                     OwnedBatch(RandomRows(random, lengths, {.spread = 0.2})));
    }
  }
}

// No array crosses the bus, in either direction: what the run copies are
// segments of rows, the mask's counts and sums.
TEST_F(InStream, CopiesNoArray) {
  Random random(5);
  const OwnedBatch batch = RandomBatch(random);
  const CorrectionSpec spec = WithLoss(BusyLoss(Surrogate::kPpoClip, 0.2));
  Trainer trainer;
  Sent sent(&trainer, spec, batch);
  fake_cuda::StartTrace();
  const CorrectResult result =
      cuda_
          ->BeginInStream(spec, sent.batch, sent.outputs, nullptr,
                          trainer.stream())
          ->Finish();
  EXPECT_EQ(result.status, CorrectStatus::kOk) << result.device_error;
  size_t copied = 0;
  for (const fake_cuda::TracedOperation& operation : fake_cuda::StopTrace()) {
    if (operation.stream == trainer.stream()) continue;
    EXPECT_NE(operation.traffic, fake_cuda::Traffic::kOnDevice);
    EXPECT_FALSE(operation.traffic == fake_cuda::Traffic::kToHost &&
                 trainer.Owns(operation.from));
    copied += operation.bytes;
  }
  const auto sums = static_cast<size_t>(ColumnsOfRows(MakePlan(spec)).totals) *
                    sizeof(double);
  EXPECT_LT(copied - sums, static_cast<size_t>(batch.num_positions()));
}

// The host waits neither for the trainer's earlier work nor for outputs before
// it has to: for sums.
TEST_F(InStream, SynchronizesNoStream) {
  Random random(6);
  const OwnedBatch batch(RandomRows(random, {40, 0, 500}, {.spread = 0.2}));
  CorrectionSpec spec = BusySpec();
  spec.weight.normalize = true;
  Run(*cuda_, spec, batch);  // makes streams and buffers
  fake_cuda::SetSeed(6);     // runs only what is waited for
  Trainer trainer;
  Sent sent(&trainer, spec, batch);
  fake_cuda::ForgetErrors();
  const CorrectResult result =
      cuda_
          ->BeginInStream(spec, sent.batch, sent.outputs, nullptr,
                          trainer.stream())
          ->Finish();
  ASSERT_EQ(result.status, CorrectStatus::kOk) << result.device_error;
  const std::map<std::string, int64_t> calls = fake_cuda::Calls();
  EXPECT_EQ(calls.count("cudaStreamSynchronize"), 0u);
  EXPECT_EQ(calls.count("cudaDeviceSynchronize"), 0u);
  EXPECT_EQ(calls.count("cudaMemcpy"), 0u);
  EXPECT_GT(fake_cuda::Alive().queued_operations, 0);
  sent.Take();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(fake_cuda::Alive().device_allocations, 10);  // the trainer's
}

TEST_F(InStream, NamesTheFirstByteThatIsNoMask) {
  Random random(7);
  OwnedBatch batch = RandomBatch(random);
  std::vector<uint8_t> mask(batch.view().response_mask,
                            batch.view().response_mask + batch.num_positions());
  mask[4321] = 7;
  mask[4400] = 2;
  for (const bool has_loss : {false, true}) {
    const CorrectionSpec spec =
        has_loss ? WithLoss(BusyLoss(Surrogate::kPpoClip, 0.2)) : BusySpec();
    fake_cuda::SetSeed(5);
    Trainer trainer;
    Sent sent(&trainer, spec, batch);
    Batch wrong = sent.batch;
    wrong.response_mask =
        static_cast<const uint8_t*>(trainer.Send(mask.data(), mask.size()));
    const CorrectResult result = cuda_
                                     ->BeginInStream(spec, wrong, sent.outputs,
                                                     nullptr, trainer.stream())
                                     ->Finish();
    ASSERT_EQ(result.status, CorrectStatus::kBadMask);
    EXPECT_EQ(result.bad_mask.position, 4321);
    EXPECT_EQ(result.bad_mask.value, 7);
  }
}

TEST_F(InStream, LeavesTheThreadsDevice) {
  const std::unique_ptr<Corrector> second = MakeFakeCuda(kSmallOptions, 1);
  Random random(8);
  const OwnedBatch batch = RandomBatch(random);
  Trainer trainer(1);
  const CorrectionSpec spec = BusySpec();
  Sent sent(&trainer, spec, batch);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const auto run = second->BeginInStream(spec, sent.batch, sent.outputs,
                                         nullptr, trainer.stream());
  EXPECT_EQ(run->Finish().status, CorrectStatus::kOk);
  int device = -1;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(second->PlaceOf(sent.outputs.weights), MemoryPlace::kDevice);
  EXPECT_EQ(cuda_->PlaceOf(sent.outputs.weights), MemoryPlace::kOtherDevice);
  EXPECT_EQ(cuda_->PlaceOf(batch.view().response_mask), MemoryPlace::kHost);
  sent.Take();
}

TEST_F(InStream, RefusesAStreamThatIsNone) {
  Random random(9);
  const OwnedBatch batch = RandomBatch(random);
  cudaStream_t gone = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking),
            cudaSuccess);
  cudaStreamDestroy(gone);
  Trainer trainer;
  const CorrectionSpec spec = BusySpec();
  const Sent sent(&trainer, spec, batch);
  const CorrectResult result =
      cuda_->BeginInStream(spec, sent.batch, sent.outputs, nullptr, gone)
          ->Finish();
  EXPECT_EQ(result.status, CorrectStatus::kDeviceError);
  EXPECT_EQ(result.device_error,
            "following the caller's stream: invalid resource handle");
  EXPECT_EQ(cpu_->BeginInStream(spec, sent.batch, sent.outputs, nullptr, gone),
            nullptr);
}

// Each call fails once; the next correction is right, and nothing is left.
TEST_F(InStream, EndsCleanlyWhereACallFails) {
  Random random(10);
  const OwnedBatch batch(RandomRows(random, {40, 0, 1, 270}, {.spread = 0.2}));
  CorrectionSpec spec = BusySpec();
  spec.weight.normalize = true;
  bool reached = true;
  for (int64_t n = 1; reached; ++n) {
    Trainer trainer;
    Sent sent(&trainer, spec, batch);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const fake_cuda::Census before = fake_cuda::Alive();
    {
      const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kSmallOptions);
      fake_cuda::SetSeed(static_cast<uint64_t>(n));
      fake_cuda::ForgetErrors();
      fake_cuda::FailCall("", n, cudaErrorUnknown);
      const CorrectResult result =
          cuda->BeginInStream(spec, sent.batch, sent.outputs, nullptr,
                              trainer.stream())
              ->Finish();
      reached = result.status != CorrectStatus::kOk;
      fake_cuda::ForgetErrors();
      if (reached) {
        EXPECT_EQ(result.status, CorrectStatus::kDeviceError) << n;
        EXPECT_FALSE(result.device_error.empty());
      }
      sent.Take();
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(fake_cuda::Alive(), before) << n;
    if (n % 16 == 0) ExpectCpuBytes(static_cast<uint64_t>(n), spec, batch);
    ASSERT_LT(n, 500);
  }
}

}  // namespace
}  // namespace counterweight::kernels
