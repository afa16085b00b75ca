// The sentence about a driver names what to install.
#include "kernels/cuda/driver.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/devices.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"

namespace counterweight::kernels {
namespace {

TEST(Driver, TooOld) {
  EXPECT_EQ(DriverTooOld("550.54.15", 13000),
            "no CUDA device can be used: driver 550.54.15 is older than CUDA "
            "13.0 needs (580)");
  EXPECT_EQ(DriverTooOld("470.82", 12080),
            "no CUDA device can be used: driver 470.82 is older than CUDA 12.8 "
            "needs (525)");
  EXPECT_EQ(DriverTooOld("580.65.06", 14000),
            "no CUDA device can be used: driver 580.65.06 is older than CUDA "
            "14.0 needs");
}

TEST(Driver, Absent) {
  EXPECT_EQ(DriverTooOld("", 13000),
            "no CUDA device can be used: no NVIDIA driver is seen here; CUDA "
            "13.0 needs one (580)");
}

TEST(Driver, ReleaseIsReadFromTheKernelModulesLine) {
  EXPECT_EQ(ReleaseIn("NVRM version: NVIDIA UNIX x86_64 Kernel Module  "
                      "550.54.15  Tue Mar  5 22:23:56 UTC 2024"),
            "550.54.15");
  EXPECT_EQ(ReleaseIn("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64 "
                      " 580.65.06  Release Build  (a@b)  Sun Jul 27 2025"),
            "580.65.06");
  EXPECT_EQ(ReleaseIn(""), "");
  EXPECT_EQ(ReleaseIn("NVRM version: 7"), "");
}

// The first call returns it.
TEST(Driver, IsWhatTheBackendsSay) {
  fake_cuda::ForgetErrors();
  fake_cuda::FailCall("cudaGetDeviceCount", 1, kDriverTooOld);
  std::string error;
  EXPECT_EQ(NumCudaDevices(&error), 0);
  EXPECT_NE(error.find("(580)"), std::string::npos) << error;
  fake_cuda::FailCall("cudaGetDeviceCount", 1, kDriverTooOld);
  EXPECT_EQ(MakeCudaCorrector(0, 0, &error), nullptr);
  EXPECT_NE(error.find("(580)"), std::string::npos) << error;
  fake_cuda::FailCall("cudaGetDeviceCount", 1, cudaErrorNoDevice);
  EXPECT_EQ(NumCudaDevices(&error), 0);
  EXPECT_EQ(error,
            "no CUDA device can be used: no CUDA-capable device is detected");
  fake_cuda::ForgetErrors();
}

}  // namespace
}  // namespace counterweight::kernels
