// Requests that cannot be corrected on a device are refused by field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/embedded/device_batch.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"

namespace counterweight::embedded {
namespace {

using kernels::OwnedBatch;
using kernels::RowOf;
using kernels::Trainer;
using ::testing::HasSubstr;

// Before the runtime's first call.
const bool two_devices =
    setenv("COUNTERWEIGHT_FAKE_CUDA_DEVICES", "2", /*replace=*/0) == 0;

constexpr char kTokenTis[] = "{\"preset\": {\"name\": \"token_tis\"}}";

kernels::Row RowOfAllRoles() {
  kernels::Row row = RowOf({0.5f, -0.5f, 0.0f, 0.25f});
  for (std::vector<float>& values : row.values) values.resize(4, -1.0f);
  return row;
}

class EmbeddedCudaErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::SetSeed(0);
    cw_options options{};
    options.struct_size = sizeof(options);
    options.backend = "cuda";
    ASSERT_EQ(cw_open(&options, &cuda_), CW_OK) << cw_last_error()->message;
    for (const cw_bytes& tensor : batch_.tensors()) {
      sent_.push_back({trainer_.Send(tensor.data, tensor.size), tensor.size});
    }
  }
  void TearDown() override { cw_close(cuda_); }

  // The error of the tensors in a request of that memory.
  std::string ErrorOf(cw_handle* handle, const std::vector<cw_bytes>& tensors,
                      int32_t memory, void* place = nullptr) {
    cw_request request = DeviceBatch::Request(message_, tensors);
    request.memory = memory;
    request.stream = trainer_.stream();
    request.context = place;
    if (place != nullptr) {
      request.place = [](void* context, int32_t, int32_t, size_t) {
        return context;
      };
    }
    cw_answer* answer = nullptr;
    EXPECT_NE(cw_correct(handle, &request, &answer), CW_OK);
    EXPECT_EQ(answer, nullptr);
    return cw_last_error()->message;
  }

  const DeviceBatch batch_{OwnedBatch({RowOfAllRoles()})};
  const std::string message_ = batch_.Message(kTokenTis, {16});
  Trainer trainer_;
  std::vector<cw_bytes> sent_;
  cw_handle* cuda_ = nullptr;
};

TEST_F(EmbeddedCudaErrors, MixedPlaces) {
  std::vector<cw_bytes> mixed = sent_;
  mixed[5] = batch_.tensors()[5];
  EXPECT_EQ(ErrorOf(cuda_, mixed, CW_CUDA),
            "tensors[5].data: lies in no memory of a CUDA device, but "
            "request.memory is CW_CUDA");
  mixed = batch_.tensors();
  mixed[0] = sent_[0];
  EXPECT_EQ(ErrorOf(cuda_, mixed, CW_HOST),
            "tensors[0].data: lies on a CUDA device, but request.memory is "
            "CW_HOST");
}

TEST_F(EmbeddedCudaErrors, AnotherDevice) {
  Trainer other(1);
  std::vector<cw_bytes> tensors = sent_;
  tensors[1].data = other.Send(batch_.tensors()[1].data, tensors[1].size);
  EXPECT_EQ(ErrorOf(cuda_, tensors, CW_CUDA),
            "tensors[1].data: lies on another CUDA device than the one that "
            "computes");
}

TEST_F(EmbeddedCudaErrors, AddressesAndMasks) {
  std::vector<cw_bytes> tensors = sent_;
  tensors[0].data = static_cast<const char*>(tensors[0].data) + 1;
  EXPECT_EQ(ErrorOf(cuda_, tensors, CW_CUDA),
            "tensors[0].data: lies at an address that is not a multiple of "
            "its element");
  const std::string mask("\1\0\3\1", 4);
  tensors = sent_;
  tensors[5].data = trainer_.Send(mask.data(), mask.size());
  EXPECT_EQ(ErrorOf(cuda_, tensors, CW_CUDA, trainer_.Allocate(64)),
            "tensors[5].data: response_mask must hold 0 and 1 only, but "
            "position 2 holds 3");
}

// By a plan too, which knows no memory before its first batch.
TEST_F(EmbeddedCudaErrors, TensorsThatTheHostReadsFirst) {
  constexpr const char* kMethods[] = {
      R"({"dialect": {"system": "prime_rl", "block": {"type": "ref_kl"}}})",
      R"({"dialect": {"system": "nemo_rl", "block": {
           "seq_logprob_error_threshold": 1.5}}})",
      R"({"config": {
           "importance_weight": {"ratio_source": "RATIO_SOURCE_OLD_ROLLOUT",
                                 "level": "LEVEL_TURN", "bound": "BOUND_NONE"},
           "policy_loss": {"surrogate": "SURROGATE_PPO_CLIP",
                           "aggregation": "LOSS_AGGREGATION_TOKEN_MEAN",
                           "denominator": "LOSS_DENOMINATOR_KEPT",
                           "clip_low": 0.2, "clip_high": 0.2}}})",
      R"({"config": {
           "importance_weight": {"ratio_source": "RATIO_SOURCE_OLD_ROLLOUT",
                                 "level": "LEVEL_TOKEN", "bound": "BOUND_NONE"},
           "policy_loss": {"surrogate": "SURROGATE_PPO_CLIP",
                           "aggregation": "LOSS_AGGREGATION_TOKEN_MEAN",
                           "denominator": "LOSS_DENOMINATOR_KEPT",
                           "clip_low": 0.2, "clip_high": 0.2},
           "sequence_filter": {"ratio_source": "RATIO_SOURCE_OLD_ROLLOUT",
                               "upper": 1.5}}})"};
  for (const char* const method : kMethods) {
    const std::string message = batch_.Message(method, {16, 20});
    const std::string refused = "before anything else, which needs log-probs";
    EXPECT_THAT(batch_.OnDevice(cuda_, message, &trainer_).message,
                HasSubstr(refused))
        << method;
    const Answered planned = batch_.Prepared(cuda_, message, &trainer_);
    EXPECT_EQ(planned.code, CW_INVALID_ARGUMENT) << method;
    EXPECT_THAT(planned.message, HasSubstr(refused)) << method;
    // In the host's memory the backend computes the rest.
    const Answered on_host = batch_.OnHost(cuda_, message);
    EXPECT_EQ(on_host.code, CW_OK) << on_host.message;
    EXPECT_EQ(batch_.Prepared(cuda_, message).outputs, on_host.outputs);
  }
}

TEST_F(EmbeddedCudaErrors, Outputs) {
  EXPECT_EQ(ErrorOf(cuda_, sent_, CW_CUDA),
            "outputs[weights]: was given no place, and the library makes no "
            "memory on a device");
  alignas(8) char on_host[64];
  EXPECT_EQ(ErrorOf(cuda_, sent_, CW_CUDA, on_host),
            "outputs[weights]: was placed in no memory of a CUDA device, but "
            "request.memory is CW_CUDA");
  EXPECT_EQ(ErrorOf(cuda_, batch_.tensors(), CW_HOST, trainer_.Allocate(64)),
            "outputs[weights]: was placed on a CUDA device, but "
            "request.memory is CW_HOST");
}

TEST_F(EmbeddedCudaErrors, Handles) {
  cw_handle* cpu = nullptr;
  ASSERT_EQ(cw_open(nullptr, &cpu), CW_OK);
  EXPECT_EQ(ErrorOf(cpu, sent_, CW_CUDA),
            "request.memory is CW_CUDA, but the handle computes on the CPU; "
            "open one with backend \"cuda\"");
  EXPECT_EQ(ErrorOf(cpu, sent_, 7),
            "request.memory must be CW_HOST or CW_CUDA");
  cw_close(cpu);
  cw_options options{};
  options.struct_size = sizeof(options);
  options.backend = "cuda";
  options.device = 2;
  EXPECT_EQ(cw_open(&options, &cpu), CW_FAILED_PRECONDITION);
  EXPECT_THAT(cw_last_error()->message, HasSubstr("there is no device 2"));
}

}  // namespace
}  // namespace counterweight::embedded
