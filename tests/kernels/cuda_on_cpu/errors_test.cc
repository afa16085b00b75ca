// Every call that can fail fails once: the request fails without further
// effects.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/gpu_check/compare.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/placed_run.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

// A row is a block.
constexpr CudaOptions kOptions = {
    .block_positions = 1, .bounce_bytes = 1024, .separate_arrays = true};

class Errors : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::ForgetErrors();
    fake_cuda::SetSeed(0);
    Random random(1);
    batch_ = std::make_unique<OwnedBatch>(
        RandomRows(random, {40, 0, 1, 270, 7}, {.spread = 0.2}));
  }

  static CorrectionSpec Spec() {
    CorrectionSpec spec = BusySpec();
    spec.weight.normalize = true;
    return spec;
  }

  // A loss that walks the batch three times.
  static CorrectionSpec LossSpec() {
    CorrectionSpec spec = WithLoss(BusyLoss(Surrogate::kKlCov, 0.2));
    spec.non_finite = NonFinitePolicy::kDrop;
    return spec;
  }

  Corrected Run(Corrector& cuda, const CorrectionSpec& spec) {
    return RunPlaced(cuda, spec, *batch_,
                     {Where::kPinned, Where::kPageable, {2, 3, 4}, true});
  }

  // Makes each call fail in turn, on a backend with a new pipe, and then
  // expects a correct run.
  void ExpectCleanFailures(const CorrectionSpec& spec, cudaError_t error,
                           CorrectStatus status) {
    const fake_cuda::Census before = fake_cuda::Alive();
    Corrected expected = RunCorrector(*cpu_, spec, *batch_);
    if (spec.loss.surrogate == Surrogate::kNone) expected.gradient.clear();
    for (int64_t n = 1;; ++n) {
      const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kOptions);
      fake_cuda::SetSeed(static_cast<uint64_t>(n));
      fake_cuda::ForgetErrors();
      fake_cuda::FailCall(api_, n, error);
      const Corrected failed = Run(*cuda, spec);
      const bool all_tried = Reached() < n;
      fake_cuda::ForgetErrors();
      if (all_tried) {
        EXPECT_EQ(FirstDifference(expected, failed), "");
        EXPECT_GT(n, 1);
        break;
      }
      // Failures of releasing calls may be invisible; the answer is then
      // correct.
      if (failed.result.status == CorrectStatus::kOk) {
        EXPECT_EQ(FirstDifference(expected, failed), "") << n;
      } else {
        EXPECT_EQ(failed.result.status, status) << n;
        EXPECT_NE(failed.result.device_error.find(cudaGetErrorString(error)),
                  std::string::npos)
            << failed.result.device_error;
      }
      EXPECT_EQ(fake_cuda::Alive().device_allocations, 0) << n;
      EXPECT_EQ(fake_cuda::Alive().queued_operations, 0) << n;
      EXPECT_EQ(FirstDifference(expected, Run(*cuda, spec)), "") << n;
    }
    EXPECT_EQ(fake_cuda::Alive(), before);
  }

  int64_t Reached() const {
    int64_t sum = 0;
    for (const auto& [api, calls] : fake_cuda::Calls()) {
      if (api_.empty() || api == api_) sum += calls;
    }
    return sum;
  }

  const std::unique_ptr<Corrector> cpu_ = MakeCpuCorrector(1);
  std::unique_ptr<OwnedBatch> batch_;
  std::string api_ = "cudaMemcpyAsync";
};

TEST_F(Errors, OfEveryCopy) {
  ExpectCleanFailures(Spec(), cudaErrorUnknown, CorrectStatus::kDeviceError);
}

TEST_F(Errors, OfEveryLaunch) {
  api_ = "launch";
  ExpectCleanFailures(LossSpec(), cudaErrorInvalidValue,
                      CorrectStatus::kDeviceError);
}

TEST_F(Errors, OfEveryAllocation) {
  api_ = "cudaMallocFromPoolAsync";
  ExpectCleanFailures(LossSpec(), cudaErrorMemoryAllocation,
                      CorrectStatus::kDeviceFull);
}

TEST_F(Errors, OfEveryStreamAndEvent) {
  for (const char* api :
       {"cudaStreamCreateWithFlags", "cudaEventCreateWithFlags",
        "cudaStreamWaitEvent", "cudaEventRecord", "cudaEventQuery",
        "cudaEventSynchronize", "cudaEventElapsedTime", "cudaMemsetAsync",
        "cudaStreamQuery", "cudaPointerGetAttributes"}) {
    api_ = api;
    SCOPED_TRACE(api_);
    ExpectCleanFailures(Spec(), cudaErrorUnknown, CorrectStatus::kDeviceError);
  }
}

// A crashed kernel disables the device: every later run fails, none hangs, and
// errors contain the device's message.
TEST_F(Errors, OfADeviceThatIsLost) {
  const std::unique_ptr<Corrector> whole = MakeFakeCuda(kOptions);
  fake_cuda::ForgetErrors();
  whole->Correct(Spec(), batch_->view(), Outputs{});
  // The last operations free memory after the answer.
  const int64_t operations = fake_cuda::OperationsRun() -
                             fake_cuda::Calls()["cudaMallocFromPoolAsync"];
  ASSERT_GT(operations, 50);
  for (int64_t n = 1; n < operations; n += 7) {
    const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kOptions);
    fake_cuda::SetSeed(static_cast<uint64_t>(n));
    fake_cuda::ForgetErrors();
    fake_cuda::FailOperation(n, cudaErrorLaunchFailure);
    const std::unique_ptr<CorrectRun> run =
        cuda->Begin(Spec(), batch_->view(), Outputs{}, nullptr);
    run->Advance(3, false);
    const CorrectResult failed = run->Finish();
    EXPECT_EQ(failed.status, CorrectStatus::kDeviceLost) << n;
    EXPECT_NE(failed.device_error.find("unspecified launch failure"),
              std::string::npos);
    const CorrectResult again =
        cuda->Correct(Spec(), batch_->view(), Outputs{});
    EXPECT_EQ(again.status, CorrectStatus::kDeviceLost);
    EXPECT_FALSE(cuda->IsAlive());
    fake_cuda::ForgetErrors();
  }
}

// A request's own mistake, or a moment's: nothing is wrong with the device.
TEST_F(Errors, OfOneCallLeaveTheDeviceAlive) {
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kOptions);
  fake_cuda::FailCall("launch", 1, cudaErrorInvalidValue);
  EXPECT_EQ(cuda->Correct(Spec(), batch_->view(), Outputs{}).status,
            CorrectStatus::kDeviceError);
  EXPECT_TRUE(cuda->IsAlive());
  // Memory is short, which the device reports.
  fake_cuda::FailCall("cudaMallocAsync", 1, cudaErrorMemoryAllocation);
  EXPECT_TRUE(cuda->IsAlive());
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(Errors, OfTheBackendItself) {
  for (int64_t n = 1; n <= 7; ++n) {
    fake_cuda::ForgetErrors();
    fake_cuda::FailCall("", n, cudaErrorUnknown);
    std::string error;
    EXPECT_EQ(MakeCudaCorrector(0, CudaOptions{}, &error), nullptr) << n;
    EXPECT_EQ(error, "no CUDA device can be used: unknown error");
  }
  fake_cuda::ForgetErrors();
  std::string error;
  EXPECT_EQ(MakeCudaCorrector(2, CudaOptions{}, &error), nullptr);
  EXPECT_EQ(error, "there is no CUDA device 2");
  // A device older than every architecture of the program.
  fake_cuda::FailCall("cudaFuncGetAttributes", 1,
                      cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(MakeCudaCorrector(0, CudaOptions{}, &error), nullptr);
  EXPECT_EQ(error,
            "no CUDA device can be used: no kernel image is available for "
            "execution on the device");
}

TEST_F(Errors, PinnedMemoryThatIsNotThere) {
  const std::unique_ptr<Corrector> cuda = MakeFakeCuda(kOptions);
  fake_cuda::FailCall("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
  EXPECT_EQ(cuda->AllocateHost(100), nullptr);
  fake_cuda::FailCall("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
  EXPECT_EQ(RunPlaced(*cuda, Spec(), *batch_, {}).result.status,
            CorrectStatus::kDeviceFull);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(RunPlaced(*cuda, Spec(), *batch_, {}).result.status,
            CorrectStatus::kOk);
}

}  // namespace
}  // namespace counterweight::kernels
