// Corrections of tensors on a device, in the caller's stream: the bytes of a
// handle on the CPU. The fake runtime runs streams late and in any order, so
// that a missing wait shows as wrong bytes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/methods.h"
#include "tests/embedded/device_batch.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/testing/random_rows.h"

namespace counterweight::embedded {
namespace {

using kernels::OwnedBatch;
using kernels::Random;
using kernels::Trainer;

constexpr int kRoles[] = {16, 17, 18, 19, 20};  // of outputs

class EmbeddedCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::SetSeed(0);
    ASSERT_EQ(cw_open(nullptr, &cpu_), CW_OK);
    cw_options options{};
    options.struct_size = sizeof(options);
    options.backend = "cuda";
    ASSERT_EQ(cw_open(&options, &cuda_), CW_OK) << cw_last_error()->message;
  }
  void TearDown() override {
    cw_close(cpu_);
    cw_close(cuda_);
  }

  static DeviceBatch SmallBatch(uint64_t seed) {
    Random random(seed);
    return DeviceBatch(
        OwnedBatch(RandomRows(random, {5, 0, 40, 33}, {.spread = 0.3})));
  }
  static std::string Preset(const kernels::Method& method) {
    return "{\"preset\": {\"name\": \"" + std::string(method.name) + "\"}}";
  }

  cw_handle* cpu_ = nullptr;
  cw_handle* cuda_ = nullptr;
};

TEST_F(EmbeddedCuda, ReturnsUnusedMemory) {
  fake_cuda::ForgetErrors();
  const DeviceBatch batch = SmallBatch(1);
  const std::string message = batch.Message(Preset(kernels::Methods()[0]), {});
  const auto correct = [&] {
    Trainer trainer;
    batch.OnDevice(cuda_, message, &trainer);
    return fake_cuda::Calls()["cudaMemPoolTrimTo"];
  };
  EXPECT_EQ(correct(), 1);
  EXPECT_EQ(correct(), 1);  // not again within seconds
}

TEST_F(EmbeddedCuda, PreparedCallsOfEveryPreset) {
  const DeviceBatch batch = SmallBatch(2);
  uint64_t seed = 0;
  int corrected = 0;
  for (const kernels::Method& method : kernels::Methods()) {
    const std::string message =
        batch.Message(Preset(method), {}, ", \"seed\": 5");
    const Answered whole = batch.OnHost(cpu_, message);
    const Answered expected = batch.Prepared(cpu_, message);
    EXPECT_EQ(expected.code, whole.code) << method.name;
    EXPECT_EQ(expected.outputs, whole.outputs) << method.name;
    fake_cuda::SetSeed(++seed);
    Trainer trainer;
    ASSERT_EQ(batch.Prepared(cuda_, message, &trainer), expected)
        << method.name;
    corrected += expected.code == CW_OK ? 1 : 0;
  }
  EXPECT_GT(corrected, 40);
}

// The caller knows where the batches of a plan are. The answer is the same.
TEST_F(EmbeddedCuda, KnownPlacesAreNotAskedFor) {
  const DeviceBatch batch = SmallBatch(4);
  const std::string message =
      batch.Message("{\"preset\": {\"name\": \"token_tis\"}}");
  const Answered expected = batch.Prepared(cpu_, message);
  ASSERT_EQ(expected.code, CW_OK) << expected.message;
  const auto questions = [&](bool knows_places) {
    fake_cuda::ForgetErrors();
    Trainer trainer;
    EXPECT_EQ(batch.Prepared(cuda_, message, &trainer, knows_places), expected);
    return fake_cuda::Calls()["cudaPointerGetAttributes"];
  };
  questions(false);
  const auto tensors =
      static_cast<int64_t>(batch.tensors().size() + expected.outputs.size());
  EXPECT_EQ(questions(false) - questions(true), tensors);
}

TEST_F(EmbeddedCuda, EveryPresetAndEverySubsetOfOutputs) {
  const DeviceBatch batch = SmallBatch(1);
  const std::string more = ", \"seed\": 5";
  uint64_t seed = 0;
  int corrected = 0;
  std::string refusal;
  for (const kernels::Method& method : kernels::Methods()) {
    for (unsigned subset = 0; subset < 1u << std::size(kRoles); ++subset) {
      std::vector<int> outputs;
      for (size_t i = 0; i < std::size(kRoles); ++i) {
        if ((subset >> i & 1u) != 0) outputs.push_back(kRoles[i]);
      }
      const std::string message = batch.Message(Preset(method), outputs, more);
      const Answered expected = batch.OnHost(cpu_, message);
      fake_cuda::SetSeed(++seed);
      Trainer trainer;
      const Answered actual = batch.OnDevice(cuda_, message, &trainer);
      ASSERT_EQ(actual, expected)
          << method.name << ", outputs " << subset << "\n"
          << actual.message << "\n"
          << expected.message;
      corrected += actual.code == CW_OK ? 1 : 0;
      if (actual.code != CW_OK) refusal = actual.message;
    }
  }
  // Gradients are refused where there is no loss.
  EXPECT_GT(corrected, 900) << refusal;
}

// One handle, one stream, batch after batch: runs reuse each other's streams,
// events and memory while the trainer's work is still queued.
TEST_F(EmbeddedCuda, BatchAfterBatchInOneStream) {
  for (const bool has_stream : {true, false}) {
    Trainer trainer(0, has_stream);
    for (uint64_t seed = 1; seed < 13; ++seed) {
      const DeviceBatch batch = SmallBatch(seed);
      const std::string message = batch.Message(
          "{\"config\": {\"importanceWeight\": {\"ratioSource\": "
          "\"RATIO_SOURCE_OLD_ROLLOUT\", \"level\": \"LEVEL_TOKEN\", "
          "\"bound\": \"BOUND_TRUNCATE\", \"upper\": 2, \"normalize\": "
          "true}}}");
      fake_cuda::SetSeed(seed);
      const Answered expected = batch.OnHost(cpu_, message);
      ASSERT_EQ(expected.code, CW_OK) << expected.message;
      ASSERT_EQ(batch.OnDevice(cuda_, message, &trainer), expected) << seed;
    }
  }
}

// Staleness is measured on the host, from copies.
TEST_F(EmbeddedCuda, Staleness) {
  const DeviceBatch batch = SmallBatch(3);
  const std::string message =
      batch.Message("{\"preset\": {\"name\": \"token_tis\"}}", {},
                    ", \"labels\": {\"policyVersion\": 9}, \"versionSpans\": "
                    "[{\"sequence\": 2, "
                    "\"start\": 3, \"end\": 30, \"policyVersion\": 7}]");
  const Answered expected = batch.OnHost(cpu_, message);
  ASSERT_EQ(expected.code, CW_OK) << expected.message;
  EXPECT_NE(expected.message.find("staleness"), std::string::npos);
  fake_cuda::SetSeed(6);
  Trainer trainer;
  EXPECT_EQ(batch.OnDevice(cuda_, message, &trainer), expected);
}

}  // namespace
}  // namespace counterweight::embedded
