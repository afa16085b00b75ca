// Several runs on one device: their blocks take turns, memory is reserved
// before use, and a batch that can never fit is refused.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/device_share.h"
#include "tests/gpu_check/compare.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/placed_run.h"
#include "tests/testing/eventually.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

class Sharing : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::ForgetErrors();
    fake_cuda::SetSeed(1);
  }

  static OwnedBatch BatchOf(uint64_t seed) {
    Random random(seed);
    return OwnedBatch(
        RandomRows(random, {300, 20, 310, 0, 500, 300, 320}, {.spread = 0.2}));
  }

  // Uses a spec without a loss.
  Corrected Expected(const OwnedBatch& batch) {
    Corrected expected = RunCorrector(*cpu_, BusySpec(), batch);
    expected.gradient.clear();
    return expected;
  }

  // Returns the bytes that a run of that batch reserves.
  static int64_t BytesOf(const OwnedBatch& batch) {
    const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kSmallOptions);
    fake_cuda::ForgetErrors();
    RunPlaced(*cuda, BusySpec(), batch, {});
    return fake_cuda::PeakDeviceBytes();
  }

  const std::unique_ptr<Corrector> cpu_ = MakeCpuCorrector(1);
};

TEST_F(Sharing, ByThreadsGivesEachItsOwnBytes) {
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kSmallOptions);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    fake_cuda::SetSeed(seed);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 6; ++i) {
      threads.emplace_back([&, i] {
        const OwnedBatch batch = BatchOf(100 * seed + i);
        PlacedRun how{static_cast<Where>(i % 3), static_cast<Where>(i % 2)};
        if (i % 3 != 2) how.arrivals = {1, 3, 6};
        EXPECT_EQ(FirstDifference(Expected(batch),
                                  RunPlaced(*cuda, BusySpec(), batch, how)),
                  "");
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(fake_cuda::Alive().device_allocations, 0);
}

// Only as many runs as fit hold memory at a time; the others wait and give
// correct answers.
TEST_F(Sharing, NeverUsesMoreMemoryThanThereIs) {
  const int64_t bytes = BytesOf(BatchOf(1));
  CudaOptions options = kSmallOptions;
  options.memory_bytes = 2 * bytes + bytes / 2;
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(options);
  fake_cuda::ForgetErrors();
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const OwnedBatch batch = BatchOf(i);
      EXPECT_EQ(FirstDifference(Expected(batch),
                                RunPlaced(*cuda, BusySpec(), batch, {})),
                "");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(fake_cuda::PeakDeviceBytes(), options.memory_bytes);
}

TEST_F(Sharing, RefusesWhatCanNeverFit) {
  const OwnedBatch batch = BatchOf(1);
  CudaOptions options = kSmallOptions;
  options.memory_bytes = BytesOf(batch) - 1;
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(options);
  const Corrected refused =
      RunPlaced(*cuda, BusySpec(), batch, {.arrivals = {3}});
  EXPECT_EQ(refused.result.status, CorrectStatus::kDeviceFull);
  EXPECT_EQ(refused.result.device_error,
            "allocating device memory: out of memory");
  const OwnedBatch small(std::vector<Row>{RowOf({0.5f, -0.5f})});
  EXPECT_EQ(RunPlaced(*cuda, WithRules({}), small, {}).result.status,
            CorrectStatus::kOk);
}

// Its thread is free meanwhile: a run that holds a share may need it.
TEST_F(Sharing, IsWaitedForWithoutAThread) {
  const OwnedBatch batch = BatchOf(1);
  CudaOptions options = kSmallOptions;
  options.memory_bytes = 2 * BytesOf(batch) + 512;
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(options);
  const auto begin = [&] {
    return cuda->Begin(BusySpec(), batch.view(), Outputs{}, nullptr);
  };
  const auto refuse = [] { ADD_FAILURE() << "it had its turn"; };
  const std::unique_ptr<CorrectRun> first = begin();
  const std::unique_ptr<CorrectRun> second = begin();
  EXPECT_EQ(first->TakeTurn(refuse), Turn::kNow);
  EXPECT_EQ(second->TakeTurn(refuse), Turn::kNow);
  int woken = 0;
  const std::unique_ptr<CorrectRun> third = begin();
  EXPECT_EQ(third->TakeTurn([&] { ++woken; }), Turn::kLater);
  EXPECT_EQ(third->TakeTurn(refuse), Turn::kLater);
  std::unique_ptr<CorrectRun> left = begin();
  EXPECT_EQ(left->TakeTurn([&] { woken += 100; }), Turn::kLater);
  left.reset();  // out of the line
  EXPECT_EQ(first->Finish().status, CorrectStatus::kOk);
  EXPECT_EQ(woken, 1);
  // One that is woken and never calls again gives its share to the next.
  std::unique_ptr<CorrectRun> woken_and_gone = begin();
  EXPECT_EQ(woken_and_gone->TakeTurn([&] { woken += 10; }), Turn::kLater);
  EXPECT_EQ(second->Finish().status, CorrectStatus::kOk);
  EXPECT_EQ(woken, 11);
  woken_and_gone.reset();
  EXPECT_EQ(begin()->TakeTurn(refuse), Turn::kNow);
  EXPECT_EQ(third->TakeTurn(refuse), Turn::kNow);
  EXPECT_EQ(third->Finish().status, CorrectStatus::kOk);
}

TEST_F(Sharing, IsNeverTakenByWhatCannotFit) {
  const OwnedBatch batch = BatchOf(1);
  CudaOptions options = kSmallOptions;
  options.memory_bytes = 1024;
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(options);
  const std::unique_ptr<CorrectRun> run =
      cuda->Begin(BusySpec(), batch.view(), Outputs{}, nullptr);
  EXPECT_EQ(run->TakeTurn(nullptr), Turn::kNever);
  EXPECT_EQ(run->Finish().status, CorrectStatus::kDeviceFull);
}

// The work queued in a run's streams is bounded by blocks, not by its batch:
// the next run's blocks follow directly.
TEST_F(Sharing, KeepsFewBlocksInTheStreams) {
  CudaOptions options = kSmallOptions;
  options.block_positions = 1;  // a row is a block
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(options);
  Random random(3);
  const OwnedBatch batch(
      RandomRows(random, std::vector<int64_t>(40, 100), {.spread = 0.2}));
  fake_cuda::ForgetErrors();
  fake_cuda::SetSeed(0);
  EXPECT_EQ(cuda->Correct(BusySpec(), batch.view(), Outputs{}).status,
            CorrectStatus::kOk);
  const int64_t allocations = fake_cuda::Calls()["cudaMallocFromPoolAsync"];
  const int64_t of_a_block =
      (fake_cuda::OperationsRun() - 2 * allocations) / 40 + 1;
  fake_cuda::SetSeed(6);  // nothing runs before it must
  std::vector<std::unique_ptr<CorrectRun>> runs;
  for (int i = 1; i <= 3; ++i) {
    runs.push_back(cuda->Begin(BusySpec(), batch.view(), Outputs{}, nullptr));
    runs.back()->Advance(40, true);
    const int64_t queued = fake_cuda::Alive().queued_operations;
    EXPECT_GT(queued, i * of_a_block);
    EXPECT_LE(queued, i * (kBlocksInFlight * of_a_block + allocations + 2));
  }
  for (const std::unique_ptr<CorrectRun>& run : runs) {
    EXPECT_EQ(run->Finish().status, CorrectStatus::kOk);
  }
}

// Scratch memory and copies of tensors are pieces of it.
TEST_F(Sharing, AllocatesOnceForARun) {
  CudaOptions options = kSmallOptions;
  options.separate_arrays = false;
  const OwnedBatch batch = BatchOf(1);
  const int64_t bytes = BytesOf(batch);
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(options);
  for (int i = 0; i < 3; ++i) {
    fake_cuda::ForgetErrors();
    const Corrected answer =
        RunPlaced(*cuda, BusySpec(), batch, {.arrivals = {i}});
    EXPECT_EQ(FirstDifference(Expected(batch), answer), "");
    EXPECT_EQ(fake_cuda::Calls()["cudaMallocFromPoolAsync"], 1);
    EXPECT_EQ(fake_cuda::Alive().device_allocations, 0);
  }
  EXPECT_EQ(fake_cuda::ReservedBytes(), bytes);
}

// cudaStreamSynchronize spins until the stream is empty.
TEST_F(Sharing, WaitsAsleep) {
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kSmallOptions);
  for (uint64_t seed = 0; seed < 7; ++seed) {
    fake_cuda::ForgetErrors();
    fake_cuda::SetSeed(seed);
    const OwnedBatch batch = BatchOf(seed);
    EXPECT_EQ(FirstDifference(Expected(batch),
                              RunPlaced(*cuda, BusySpec(), batch, {})),
              "");
    int asked = 0;
    const auto stop = [&] { return ++asked > 2; };
    EXPECT_EQ(RunPlaced(*cuda, BusySpec(), batch, {.stop = stop}).result.status,
              CorrectStatus::kStopped);
    EXPECT_TRUE(cuda->IsAlive());
    const std::map<std::string, int64_t> calls = fake_cuda::Calls();
    EXPECT_EQ(calls.count("cudaStreamSynchronize"), 0u);
    EXPECT_EQ(calls.count("cudaDeviceSynchronize"), 0u);
  }
}

// A trainer on the same device needs what batches do not.
TEST_F(Sharing, ReturnsWhatNoBatchNeededLately) {
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kSmallOptions);
  const OwnedBatch small = BatchOf(1);
  Random random(2);
  const OwnedBatch large(
      RandomRows(random, std::vector<int64_t>(20, 5000), {.spread = 0.2}));
  const auto run = [&](const OwnedBatch& batch) {
    const Corrected answer = RunPlaced(*cuda, BusySpec(), batch, {});
    EXPECT_EQ(FirstDifference(Expected(batch), answer), "");
  };
  run(small);
  const int64_t of_small = fake_cuda::ReservedBytes();
  run(large);
  const int64_t of_large = fake_cuda::ReservedBytes();
  ASSERT_GT(of_large, 2 * of_small);
  ASSERT_GT(of_small, 0);
  run(small);
  EXPECT_EQ(fake_cuda::ReservedBytes(), of_large);  // kept for a next one
  cuda->ReturnUnused();
  EXPECT_EQ(fake_cuda::ReservedBytes(), of_large);
  run(small);
  cuda->ReturnUnused();  // needed since the call before the last one
  EXPECT_EQ(fake_cuda::ReservedBytes(), of_large);
  run(small);
  cuda->ReturnUnused();
  EXPECT_LE(fake_cuda::ReservedBytes(), 2 * of_small);
  EXPECT_GE(fake_cuda::ReservedBytes(), of_small);
  cuda->ReturnUnused();
  cuda->ReturnUnused();
  EXPECT_EQ(fake_cuda::ReservedBytes(), 0);
  run(large);
}

// The device's default pool is the process's: what a trainer set there stays.
TEST_F(Sharing, HasAPoolOfItsOwn) {
  const int64_t before = fake_cuda::Alive().pools;
  {
    const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kSmallOptions);
    EXPECT_EQ(fake_cuda::Alive().pools, before + 1);
    fake_cuda::ForgetErrors();
    RunPlaced(*cuda, BusySpec(), BatchOf(1), {});
    EXPECT_EQ(fake_cuda::Calls()["cudaMallocAsync"], 0);
  }
  EXPECT_EQ(fake_cuda::Alive().pools, before);
}

TEST_F(Sharing, OfDevicesIsByDevice) {
  const std::unique_ptr<Corrector> zero = MakeFakeCuda(kSmallOptions, 0);
  const std::unique_ptr<Corrector> one = MakeFakeCuda(kSmallOptions, 1);
  EXPECT_NE(zero->Info().devices[0].uuid, one->Info().devices[0].uuid);
  const OwnedBatch batch = BatchOf(1);
  // Calls from one thread in turn: each selects its device.
  for (Corrector* cuda : {zero.get(), one.get(), zero.get()}) {
    for (const Where where : {Where::kPinned, Where::kDevice}) {
      EXPECT_EQ(
          FirstDifference(Expected(batch),
                          RunPlaced(*cuda, BusySpec(), batch, {where, where})),
          "");
    }
  }
}

TEST(DeviceShare, IsTakenInTheOrderOfAsking) {
  DeviceShare share(100, 8);
  ASSERT_TRUE(share.Take(60, nullptr));
  std::vector<int> order;
  std::mutex mutex;
  std::atomic<int> waiting = 0;
  const auto ask = [&](int name, int64_t bytes) {
    // A waiting run is polled for a stop request; the poll shows that it is in
    // line.
    bool counted = false;
    const bool taken = share.Take(bytes, [&] {
      if (!counted) ++waiting;
      counted = true;
      return false;
    });
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(taken);
    order.push_back(name);
  };
  std::thread large([&] { ask(1, 80); });
  ASSERT_TRUE(Eventually([&] { return waiting >= 1; }));
  // It would fit now, but must not overtake the large one.
  std::thread small([&] { ask(2, 10); });
  ASSERT_TRUE(Eventually([&] { return waiting >= 2; }));
  EXPECT_FALSE(share.TryTake(1));
  EXPECT_TRUE(order.empty());
  share.GiveBack(60);
  large.join();
  small.join();
  share.GiveBack(80);
  share.GiveBack(10);
  EXPECT_EQ(order.size(), 2u);
  EXPECT_TRUE(share.TryTake(50));
  EXPECT_FALSE(share.TryTake(1));
}

// Each of them would fit, but together they would delay a large run until no
// more arrive.
TEST(DeviceShare, IsNotTakenEarlyWhileARunWaits) {
  DeviceShare share(100, 8);
  ASSERT_TRUE(share.Take(30, nullptr));
  ASSERT_TRUE(share.TryTake(1));
  share.GiveBack(1);
  std::atomic<bool> waits = false;
  std::thread large([&] {
    EXPECT_TRUE(share.Take(80, [&] {
      waits = true;
      return false;
    }));
  });
  ASSERT_TRUE(Eventually([&] { return waits.load(); }));
  EXPECT_FALSE(share.TryTake(1));
  share.GiveBack(30);
  large.join();
  share.GiveBack(80);
  EXPECT_TRUE(share.TryTake(1));
}

TEST(DeviceShare, IsNotWaitedForByWhoHasGone) {
  DeviceShare share(100, 1);
  ASSERT_TRUE(share.Take(1, nullptr));
  EXPECT_FALSE(share.Take(1, [] { return true; }));
  share.GiveBack(1);
  EXPECT_TRUE(share.Take(100, [] { return true; }));
}

}  // namespace
}  // namespace counterweight::kernels
