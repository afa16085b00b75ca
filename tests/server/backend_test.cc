// The command line's devices on a machine without any.
#include "server/backend.h"

#include <string>

#include "gtest/gtest.h"
#include "kernels/devices.h"
#include "nlohmann/json.hpp"

namespace counterweight::server {
namespace {

class WithoutDevices : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (kernels::NumCudaDevices(&reason) > 0) {
      GTEST_SKIP() << "this machine has devices";
    }
    EXPECT_NE(reason, "");
  }
};

TEST_F(WithoutDevices, AutoTakesTheCpuAndSaysWhy) {
  const BackendChoice choice = MakeCorrector(Config{});
  ASSERT_NE(choice.corrector, nullptr);
  EXPECT_EQ(choice.corrector->Info().name, "cpu");
  EXPECT_NE(choice.reason.find("CUDA"), std::string::npos) << choice.reason;
}

TEST_F(WithoutDevices, TheCpuNeedsNoReason) {
  Config config;
  config.backend = Backend::kCpu;
  const BackendChoice choice = MakeCorrector(config);
  EXPECT_NE(choice.corrector, nullptr);
  EXPECT_EQ(choice.reason, "");
}

TEST_F(WithoutDevices, CudaIsRefusedByTheFlagThatAsksForIt) {
  Config config;
  config.backend = Backend::kCuda;
  const BackendChoice choice = MakeCorrector(config);
  EXPECT_EQ(choice.corrector, nullptr);
  EXPECT_EQ(choice.reason.rfind("--backend=cuda: ", 0), 0U) << choice.reason;
}

TEST_F(WithoutDevices, WhoNamesDevicesDoesNotGetTheCpu) {
  Config config;
  config.devices = {.is_given = true, .all = true, .indices = {}};
  BackendChoice choice = MakeCorrector(config);
  EXPECT_EQ(choice.corrector, nullptr);
  EXPECT_EQ(choice.reason.rfind("--devices=all: ", 0), 0U) << choice.reason;
  config.devices = {.is_given = true, .all = false, .indices = {0, 2}};
  choice = MakeCorrector(config);
  EXPECT_EQ(choice.corrector, nullptr);
  EXPECT_EQ(choice.reason.rfind("--devices=0,2: ", 0), 0U) << choice.reason;
}

TEST(BackendJson, ListsTheDevices) {
  EXPECT_EQ(
      ToJson(kernels::BackendInfo{
                 .name = "cuda",
                 .instruction_set = "",
                 .threads = 0,
                 .devices = {{.index = 0, .name = "A", .memory_bytes = 7},
                             {.index = 2, .name = "B", .memory_bytes = 8}}})
          .dump(),
      R"({"name":"cuda","instruction_set":"","devices":[)"
      R"({"index":0,"name":"A","memory_bytes":7},)"
      R"({"index":2,"name":"B","memory_bytes":8}]})");
}

}  // namespace
}  // namespace counterweight::server
