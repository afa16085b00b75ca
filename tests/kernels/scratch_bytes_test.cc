// Corrector::ScratchBytes against what a correction allocates, which this
// program's operator new counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/methods.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"

namespace {

std::atomic<int64_t> allocated = 0;
std::atomic<int64_t> peak = 0;

// The size precedes the memory.
constexpr size_t kHeader = 64;

void* Allocate(size_t bytes) {
  auto* const block = static_cast<std::byte*>(
      std::aligned_alloc(kHeader, bytes + 2 * kHeader - bytes % kHeader));
  if (block == nullptr) throw std::bad_alloc();
  *reinterpret_cast<size_t*>(block) = bytes;
  const int64_t now = allocated += static_cast<int64_t>(bytes);
  int64_t before = peak;
  while (now > before && !peak.compare_exchange_weak(before, now)) {
  }
  return block + kHeader;
}

void Free(void* memory) {
  if (memory == nullptr) return;
  void* const block = static_cast<std::byte*>(memory) - kHeader;
  allocated -= static_cast<int64_t>(*static_cast<size_t*>(block));
  std::free(block);
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t) { return Allocate(bytes); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  Free(memory);
}

namespace counterweight::kernels {
namespace {

// The list of jobs and the like: as much for any batch.
constexpr int64_t kSmall = 256;

struct Shape {
  std::string name;
  std::vector<int64_t> lengths;
  int threads;
};

class ScratchBytes : public testing::TestWithParam<Shape> {
 protected:
  ScratchBytes()
      : corrector_(MakeCpuCorrector(GetParam().threads)),
        batch_(MakeBatch(GetParam().lengths)) {
    Random random(1);
    SetRandomGroups(random, batch_);
  }

  static OwnedBatch MakeBatch(const std::vector<int64_t>& lengths) {
    Random random(lengths.size());
    return OwnedBatch(RandomRows(random, lengths));
  }

  // The peak of a correction beyond what lay there before.
  int64_t Measure(const CorrectionSpec& spec) {
    const Batch batch = batch_.view();
    Outputs outputs;
    std::vector<float> weights(static_cast<size_t>(batch_.num_positions()));
    std::vector<float> gradient(weights.size());
    std::vector<uint8_t> keep_mask(weights.size());
    outputs.weights = weights.data();
    outputs.keep_mask = keep_mask.data();
    if (spec.loss.surrogate != Surrogate::kNone)
      outputs.gradient = gradient.data();
    // Threads keep what a first batch makes them allocate.
    corrector_->Correct(spec, batch, outputs);
    const int64_t before = allocated;
    peak = before;
    // This thread has kept the memory of its last batch; another has none.
    std::thread([&] {
      const CorrectResult result = corrector_->Correct(spec, batch, outputs);
      EXPECT_EQ(result.status, CorrectStatus::kOk);
    }).join();
    return peak - before;
  }

  void ExpectCharged(const CorrectionSpec& spec, const std::string& name) {
    const int64_t charged = corrector_->ScratchBytes(spec, batch_.view());
    const int64_t used = Measure(spec);
    EXPECT_LE(used, charged + kSmall) << name;
    // Not every loss has factors of rows, which are most of empty ones.
    EXPECT_GE(used + kSmall, charged / 2) << name;
  }

  const std::unique_ptr<Corrector> corrector_;
  OwnedBatch batch_;
};

TEST_P(ScratchBytes, AreWhatEachMethodTakes) {
  for (const Method& method : Methods()) {
    std::vector<ParameterViolation> violations;
    const CorrectionSpec spec = MakeSpec(method, {}, &violations);
    if (!violations.empty()) continue;
    ExpectCharged(spec, std::string(method.name));
  }
}

TEST_P(ScratchBytes, AreWhatEachSurrogateTakes) {
  for (const Surrogate surrogate : Surrogates()) {
    ExpectCharged(WithLoss(BusyLoss(surrogate, 0.1)),
                  std::to_string(static_cast<int>(surrogate)));
  }
}

// Factors of rows and counts of groups.
TEST_P(ScratchBytes, AreWhatRandomLossesTake) {
  Random random(7);
  for (int i = 0; i < 40; ++i) {
    const CorrectionSpec spec = RandomLossSpec(random, 0.1, /*longest=*/0);
    ExpectCharged(spec, Describe(spec.loss));
  }
}

std::vector<int64_t> WithALongRow(std::vector<int64_t> lengths) {
  lengths.push_back(70'000);
  return lengths;
}

INSTANTIATE_TEST_SUITE_P(
    On, ScratchBytes,
    testing::Values(Shape{"one_long_row", {600'000}, 2},
                    Shape{"short_rows", std::vector<int64_t>(3000, 20), 3},
                    Shape{"mixed", {70'000, 3, 500, 200'000, 0, 66'000}, 2},
                    Shape{"one_of_many",
                          WithALongRow(std::vector<int64_t>(3000, 5)), 2},
                    Shape{"empty_rows", std::vector<int64_t>(20'000, 0), 1}),
    [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace counterweight::kernels
