#include "kernels/staleness.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/choose_kernels.h"
#include "kernels/math/exact_sum.h"
#include "kernels/math/exp.h"

namespace counterweight::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A batch that owns its numbers; the drift is old against rollout.
struct StaleBatch {
  std::vector<int64_t> offsets{0};
  std::vector<float> rollout, old;
  std::vector<uint8_t> mask;
  std::vector<int32_t> versions;
  CorrectionSpec spec{};

  void AddRow(const std::vector<float>& log_ratios,
              const std::vector<int32_t>& row_versions) {
    for (const float l : log_ratios) {
      rollout.push_back(0.0f);
      old.push_back(l);
      mask.push_back(1);
    }
    versions.insert(versions.end(), row_versions.begin(), row_versions.end());
    offsets.push_back(static_cast<int64_t>(old.size()));
  }

  Batch View() const {
    Batch batch;
    batch.num_sequences = static_cast<int64_t>(offsets.size()) - 1;
    batch.offsets = offsets.data();
    batch.tensors[static_cast<int>(InputRole::kRollout)].data = rollout.data();
    batch.tensors[static_cast<int>(InputRole::kOld)].data = old.data();
    batch.response_mask = mask.data();
    return batch;
  }

  CorrectResult Measure(int64_t trained, const StopRequest& stop = {}) const {
    return Measure(
        {.trained = trained, .of_positions = versions.data(), .came = true},
        stop);
  }
  CorrectResult Measure(const PolicyVersions& told,
                        const StopRequest& stop = {},
                        const DeviceInputs& on_device = {},
                        Corrector* corrector = nullptr) const {
    CorrectResult result;
    MeasureStaleness(spec, View(), told, on_device, corrector, stop, &result);
    return result;
  }
};

void ExpectSameBits(const StalenessSums& a, const StalenessSums& b) {
  EXPECT_EQ(0, std::memcmp(&a, &b, sizeof(StalenessSums)));
}

// Rows of random lengths, one longer than a block, with masked positions and
// versions from 0 to 9.
StaleBatch RandomBatch() {
  std::mt19937 random(5);
  std::normal_distribution<float> log_ratio(0.0f, 0.1f);
  std::uniform_int_distribution<int> version(-1, 9);
  StaleBatch batch;
  for (const int length : {3, 0, 300, 70000, 1, 513}) {
    std::vector<float> ratios;
    std::vector<int32_t> versions;
    for (int i = 0; i < length; ++i) {
      ratios.push_back(log_ratio(random));
      versions.push_back(version(random));
    }
    batch.AddRow(ratios, versions);
  }
  for (uint8_t& m : batch.mask) m = random() % 4 != 0;
  return batch;
}

double HalvedSum(const std::array<float, 32>& lanes) {
  std::array<double, 32> sums;
  std::copy(lanes.begin(), lanes.end(), sums.begin());
  for (size_t half = 16; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

TEST(Staleness, KnownAnswer) {
  StaleBatch batch;
  batch.AddRow({0.5f, -0.25f, 0.125f, 9.0f}, {10, 9, 10, 77});
  batch.mask[3] = 0;  // neither its version nor its ratio counts
  batch.AddRow({}, {});
  batch.AddRow({1.0f, -1.0f, 0.0f, 2.0f}, {6, 0, -1, 2});
  const CorrectResult result = batch.Measure(10);
  ASSERT_EQ(result.status, CorrectStatus::kOk);
  const StalenessSums& sums = result.sums.staleness;
  EXPECT_EQ(sums.measured, 1);
  const int64_t tokens[] = {2, 1, 0, 1, 1, 1};
  const double log_ratios[] = {0.625, -0.25, 0.0, 1.0, 2.0, -1.0};
  for (int b = 0; b < kNumStalenessBuckets; ++b) {
    EXPECT_EQ(sums.buckets[b].tokens, tokens[b]) << b;
    EXPECT_EQ(sums.buckets[b].log_ratio, log_ratios[b]) << b;
  }
  EXPECT_NEAR(sums.buckets[0].k3,
              std::expm1(0.5) - 0.5 + std::expm1(0.125) - 0.125, 1e-7);
  EXPECT_NEAR(K3Of(sums.buckets[3]), std::exp(1.0) - 2.0, 1e-6);
  EXPECT_EQ(KlOf(sums.buckets[0]), -0.3125);
  EXPECT_TRUE(std::isnan(KlOf(sums.buckets[2])));
  EXPECT_EQ(sums.unknown_tokens, 1);
  EXPECT_EQ(KnownTokens(sums), 6);
  EXPECT_EQ(sums.staleness, 1 + 4 + 10 + 8);
  EXPECT_EQ(sums.max, 10);
  const int64_t histogram[] = {2, 1, 0, 1, 1, 1, 0, 0, 0, 0};
  for (int b = 0; b <= kNumStalenessEdges; ++b) {
    EXPECT_EQ(sums.histogram[b], histogram[b]) << b;
  }
}

TEST(Staleness, HugeVersionsFallIntoTheLastBuckets) {
  StaleBatch batch;
  batch.AddRow({0.0f, 0.0f}, {0, INT32_MAX});
  const CorrectResult result = batch.Measure(INT64_MAX);
  const StalenessSums& sums = result.sums.staleness;
  EXPECT_EQ(sums.buckets[kNumStalenessBuckets - 1].tokens, 2);
  EXPECT_EQ(sums.histogram[kNumStalenessEdges], 2);
  EXPECT_EQ(sums.max, INT64_MAX);
}

TEST(Staleness, ABatchWithoutRowsIsMeasured) {
  const CorrectResult result = StaleBatch().Measure(1);
  EXPECT_EQ(result.status, CorrectStatus::kOk);
  EXPECT_EQ(result.sums.staleness.measured, 1);
  EXPECT_EQ(KnownTokens(result.sums.staleness), 0);
}

TEST(Staleness, AVersionOutOfRangeIsNamed) {
  StaleBatch batch;
  batch.AddRow({0.0f, 0.0f}, {8, 3});
  batch.AddRow({0.0f, 0.0f, 0.0f}, {3, 3, 8});
  batch.mask[0] = 0;
  CorrectResult result = batch.Measure(7);
  ASSERT_EQ(result.status, CorrectStatus::kBadVersion);
  EXPECT_EQ(result.bad_version.sequence, 1);
  EXPECT_EQ(result.bad_version.token, 2);
  EXPECT_EQ(result.bad_version.version, 8);
  EXPECT_EQ(result.bad_version.trained, 7);
  EXPECT_FALSE(result.bad_version.by_span);
  batch.versions[1] = -2;
  // Versions are compared where no metrics are wanted, too.
  batch.spec.metrics = false;
  result = batch.Measure(8);
  ASSERT_EQ(result.status, CorrectStatus::kBadVersion);
  EXPECT_EQ(result.bad_version.sequence, 0);
  EXPECT_EQ(result.bad_version.token, 1);
}

TEST(Staleness, SpansSayTheSameAsATensor) {
  const StaleBatch batch = RandomBatch();
  std::vector<VersionSpan> spans;
  for (size_t row = 0; row + 1 < batch.offsets.size(); ++row) {
    for (int64_t at = batch.offsets[row]; at < batch.offsets[row + 1]; ++at) {
      const int64_t version = batch.versions[static_cast<size_t>(at)];
      const int64_t token = at - batch.offsets[row];
      const auto sequence = static_cast<int64_t>(row);
      if (version < 0) continue;
      if (!spans.empty() && spans.back().sequence == sequence &&
          spans.back().end == token && spans.back().version == version) {
        ++spans.back().end;
      } else {
        spans.push_back({sequence, token, token + 1, version});
      }
    }
  }
  const CorrectResult by_span =
      batch.Measure({.trained = 9,
                     .spans = spans.data(),
                     .num_spans = static_cast<int64_t>(spans.size()),
                     .came = true});
  ASSERT_EQ(by_span.status, CorrectStatus::kOk);
  EXPECT_GT(KnownTokens(by_span.sums.staleness), 40000);
  ExpectSameBits(by_span.sums.staleness, batch.Measure(9).sums.staleness);
  spans.back().version = 10;
  const CorrectResult bad = batch.Measure(
      {.trained = 9, .spans = &spans.back(), .num_spans = 1, .came = true});
  // Only where the mask is 1 is a span's version compared.
  const bool counts = batch.mask.back() != 0;
  EXPECT_EQ(bad.status,
            counts ? CorrectStatus::kBadVersion : CorrectStatus::kOk);
  EXPECT_EQ(bad.bad_version.by_span, counts);
}

// README.md's order: float32 by step in a lane of a block, lanes by halving,
// blocks of a segment in order, segments exactly.
TEST(Staleness, TheOrderOfAdditionIsTheReadmes) {
  const StaleBatch batch = RandomBatch();
  constexpr int64_t kBlock = 256, kSegment = 4096;
  constexpr size_t kLanes = 32;
  StalenessBucketSums want{};
  ExactSum log_ratios, k3s;
  for (size_t row = 0; row + 1 < batch.offsets.size(); ++row) {
    const int64_t end = batch.offsets[row + 1];
    double log_ratio = 0.0, k3 = 0.0;
    for (int64_t at = batch.offsets[row]; at < end;) {
      std::array<float, kLanes> l{}, k{};
      const int64_t block_end = std::min(end, at + kBlock);
      for (size_t i = 0; at < block_end; ++at, ++i) {
        const auto p = static_cast<size_t>(at);
        const int64_t stale = 9 - batch.versions[p];
        if (batch.mask[p] == 0 || stale < 5 || stale > 8) continue;
        ++want.tokens;
        l[i % kLanes] += batch.old[p];
        k[i % kLanes] += exp_terms(batch.old[p]).k3;
      }
      log_ratio += HalvedSum(l);
      k3 += HalvedSum(k);
      if ((at - batch.offsets[row]) % kSegment != 0 && at < end) continue;
      log_ratios.add(std::exchange(log_ratio, 0.0));
      k3s.add(std::exchange(k3, 0.0));
    }
  }
  const CorrectResult result = batch.Measure(9);
  const StalenessBucketSums& got = result.sums.staleness.buckets[4];
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.log_ratio, log_ratios.sum());
  EXPECT_EQ(got.k3, k3s.sum());
}

TEST(Staleness, PaddingChangesNoBit) {
  const StaleBatch packed = RandomBatch();
  StaleBatch padded;
  constexpr size_t kWidth = 70003;
  for (size_t row = 0; row + 1 < packed.offsets.size(); ++row) {
    std::vector<float> ratios(kWidth, kNan);
    std::vector<int32_t> versions(kWidth, 1000);
    std::vector<uint8_t> mask(kWidth, 0);
    const auto begin = static_cast<size_t>(packed.offsets[row]);
    const auto end = static_cast<size_t>(packed.offsets[row + 1]);
    for (size_t p = begin; p < end; ++p) {
      ratios[p - begin] = packed.old[p];
      versions[p - begin] = packed.versions[p];
      mask[p - begin] = packed.mask[p];
    }
    padded.AddRow(ratios, versions);
    std::copy(mask.begin(), mask.end(), padded.mask.end() - kWidth);
  }
  ExpectSameBits(padded.Measure(9).sums.staleness,
                 packed.Measure(9).sums.staleness);
}

TEST(Staleness, NonFiniteTokensAreTreatedAsTheDriftTreatsThem) {
  StaleBatch batch;
  batch.AddRow({0.5f, kNan, 0.25f}, {0, 0, 0});
  batch.spec.non_finite = NonFinitePolicy::kDrop;
  CorrectResult result = batch.Measure(0);
  EXPECT_EQ(result.sums.staleness.buckets[0].tokens, 2);
  EXPECT_EQ(result.sums.staleness.buckets[0].log_ratio, 0.75);
  batch.spec.non_finite = NonFinitePolicy::kNeutralize;
  result = batch.Measure(0);
  EXPECT_EQ(result.sums.staleness.buckets[0].tokens, 3);
  EXPECT_EQ(result.sums.staleness.buckets[0].log_ratio, 0.75);
  // A rollout log-prob that the sampler did not report: its ratio is 1.
  batch.spec.non_finite = NonFinitePolicy::kReject;
  batch.spec.unknown_rollout = true;
  batch.old[1] = -3.0f;
  batch.rollout[1] = kNan;
  result = batch.Measure(0);
  EXPECT_EQ(result.sums.staleness.buckets[0].tokens, 3);
  EXPECT_EQ(result.sums.staleness.buckets[0].log_ratio, 0.75);
}

TEST(Staleness, TokensAddUpToTheCorrections) {
  StaleBatch batch = RandomBatch();
  batch.old[5] = kNan;
  batch.spec.non_finite = NonFinitePolicy::kDrop;
  CorrectResult result =
      MakeCpuCorrector(1)->Correct(batch.spec, batch.View(), {});
  ASSERT_EQ(result.status, CorrectStatus::kOk);
  const DriftSums drift = result.sums.drift;
  result.sums.staleness = batch.Measure(9).sums.staleness;
  const StalenessSums& stale = result.sums.staleness;
  EXPECT_EQ(KnownTokens(stale) + stale.unknown_tokens, result.sums.tokens);
  // All versions known: the buckets' sums are the drift's.
  for (int32_t& version : batch.versions) version = std::max(version, 0);
  const StalenessSums known = batch.Measure(9).sums.staleness;
  double log_ratio = 0.0;
  double k3 = 0.0;
  for (const StalenessBucketSums& bucket : known.buckets) {
    log_ratio += bucket.log_ratio;
    k3 += bucket.k3;
  }
  // Blocks are float32 here: half a step of each token's sum of up to 8.
  EXPECT_NEAR(log_ratio, drift.log_ratio, 1e-6 * drift.abs_log_ratio);
  EXPECT_NEAR(k3, drift.k3, 1e-6 * drift.k3);
}

TEST(Staleness, AStopIsAskedBetweenBlocks) {
  const StaleBatch batch = RandomBatch();
  int asked = 0;
  const CorrectResult result = batch.Measure(9, [&] { return ++asked == 2; });
  EXPECT_EQ(result.status, CorrectStatus::kStopped);
  EXPECT_EQ(asked, 2);
}

// Device memory is host memory at another address.
class FarMemory final : public Corrector {
 public:
  static constexpr ptrdiff_t kDistance = ptrdiff_t{1} << 40;

  static const void* Far(const void* data) {
    return reinterpret_cast<const void*>(reinterpret_cast<intptr_t>(data) +
                                         kDistance);
  }
  CorrectResult Correct(const CorrectionSpec& /*spec*/, const Batch& /*batch*/,
                        const Outputs& /*outputs*/) override {
    return {};
  }
  bool CopyFromDevice(void* to, const void* from, size_t bytes,
                      std::string* error) override {
    if (fails) {
      *error = "gone";
      return false;
    }
    largest = std::max(largest, bytes);
    std::memcpy(to,
                reinterpret_cast<const void*>(reinterpret_cast<intptr_t>(from) -
                                              kDistance),
                bytes);
    return true;
  }
  BackendInfo Info() const override { return {}; }

  bool fails = false;
  size_t largest = 0;
};

TEST(Staleness, DeviceMemoryIsCopiedBlockByBlock) {
  const StaleBatch batch = RandomBatch();
  Batch view = batch.View();
  for (const InputRole role : {InputRole::kRollout, InputRole::kOld}) {
    TensorView& tensor = view.tensors[static_cast<int>(role)];
    tensor.data = FarMemory::Far(tensor.data);
  }
  view.response_mask =
      static_cast<const uint8_t*>(FarMemory::Far(view.response_mask));
  const DeviceInputs on_device{
      .roles = 1u << static_cast<int>(InputRole::kRollout) |
               1u << static_cast<int>(InputRole::kOld),
      .versions = true,
      .mask = true};
  const PolicyVersions versions{
      .trained = 9,
      .of_positions = FarMemory::Far(batch.versions.data()),
      .came = true};
  FarMemory memory;
  CorrectResult result;
  MeasureStaleness(batch.spec, view, versions, on_device, &memory, {}, &result);
  ASSERT_EQ(result.status, CorrectStatus::kOk);
  ExpectSameBits(result.sums.staleness, batch.Measure(9).sums.staleness);
  EXPECT_LT(memory.largest, batch.old.size() * sizeof(float));
  // Three of 4 bytes a position, and the mask; blocks are whole tiles.
  const int64_t reserved = StalenessScratchBytes(batch.spec, on_device);
  EXPECT_LE(static_cast<int64_t>(13 * memory.largest / 4), reserved);
  EXPECT_GT(static_cast<int64_t>(13 * memory.largest / 4) + 13 * 256, reserved);
  EXPECT_EQ(StalenessScratchBytes(batch.spec, {}), 0);
  memory.fails = true;
  MeasureStaleness(batch.spec, view, versions, on_device, &memory, {}, &result);
  EXPECT_EQ(result.status, CorrectStatus::kDeviceError);
  EXPECT_EQ(result.device_error, "gone");
}

TEST(Staleness, InstructionSetsHaveTheSameK3) {
  std::vector<float> log_ratios;
  for (int i = -3000; i < 3000; ++i) {
    log_ratios.push_back(static_cast<float>(i) * 0.031f);
    log_ratios.push_back(static_cast<float>(i) * 1e-6f);
  }
  const auto k3_by = [&](CpuIsa isa) {
    std::vector<float> k3(log_ratios.size());
    KernelsFor(isa)->k3_of(log_ratios.data(), static_cast<int64_t>(k3.size()),
                           k3.data());
    return k3;
  };
  const std::vector<float> want = k3_by(CpuIsa::kGeneric);
  for (const CpuIsa isa : {CpuIsa::kBest, CpuIsa::kV3, CpuIsa::kV4}) {
    if (KernelsFor(isa) == nullptr) continue;
    EXPECT_EQ(k3_by(isa), want);
  }
}

}  // namespace
}  // namespace counterweight::kernels
