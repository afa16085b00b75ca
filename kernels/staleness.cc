#include "kernels/staleness.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/choose_kernels.h"
#include "kernels/float_modes.h"
#include "kernels/math/bits.h"
#include "kernels/math/exact_sum.h"
#include "kernels/tile/tile_state.h"
#include "kernels/walk/make_plan.h"
#include "kernels/walk/partial_layout.h"
#include "kernels/walk/staleness_walk.h"

namespace counterweight::kernels {

namespace {

// Positions between two checks whether to stop, and of a copy from a device.
constexpr int64_t kBlock = int64_t{1} << 16;
constexpr int64_t kUnknown = -1;
// Marks a position that does not count.
constexpr int64_t kIgnored = -2;
constexpr int64_t kVersionBytes = sizeof(int32_t);

float NumberAt(const std::byte* data, DType dtype, int64_t i) {
  if (dtype == DType::kF32) {
    float x;
    std::memcpy(&x, data + i * 4, sizeof(x));
    return x;
  }
  uint16_t half;
  std::memcpy(&half, data + i * 2, sizeof(half));
  return dtype == DType::kBF16 ? from_bf16(half) : from_f16(half);
}

// One token's numbers, by InputRole.
using TokenInputs = std::array<float, kNumTensors>;

// The walk's treatment of one token; see walk/ratio_phase.h. Returns false if
// the token does not count.
bool Settle(const Plan& plan, TokenInputs* token) {
  const RatioSource drift = plan.spec.drift_source;
  float& rollout = (*token)[static_cast<size_t>(InputRole::kRollout)];
  if (plan.spec.unknown_rollout && !(rollout == rollout)) {
    const float other = (*token)[static_cast<size_t>(numerator(drift))];
    rollout = is_finite(other) ? other : 0.0f;
  }
  bool is_good = true;
  for (size_t r = 0; r < token->size(); ++r) {
    is_good = is_good && is_finite((*token)[r]);
  }
  for (int r = 0; r < kNumRatioSources; ++r) {
    if ((plan.sources >> r & 1u) == 0) continue;
    const auto source = static_cast<RatioSource>(r);
    is_good = is_good &&
              is_finite((*token)[static_cast<size_t>(numerator(source))] -
                        (*token)[static_cast<size_t>(denominator(source))]);
  }
  if (is_good) return true;
  *token = {};
  return plan.spec.non_finite != NonFinitePolicy::kDrop;
}

class StalenessPass {
 public:
  StalenessPass(const CorrectionSpec& spec, const Batch& batch,
                const PolicyVersions& versions, const DeviceInputs& on_device,
                Corrector* corrector)
      : plan_(MakePlan(spec)),
        batch_(batch),
        versions_(versions),
        on_device_(on_device),
        corrector_(corrector),
        kernels_(*KernelsFor(CpuIsa::kBest)) {}

  void Run(const StopRequest& stop, CorrectResult* result) {
    const int64_t positions = batch_.offsets[batch_.num_sequences];
    for (int64_t begin = 0, next = 0; begin < positions; begin = next) {
      const int64_t end = EndOfBlock(begin, positions);
      next = end;
      if (stop && stop()) {
        result->status = CorrectStatus::kStopped;
        return;
      }
      if (!PlaceBlock(begin, end - begin, &result->device_error)) {
        result->status = corrector_->IsAlive() ? CorrectStatus::kDeviceError
                                               : CorrectStatus::kDeviceLost;
        return;
      }
      for (int64_t at = begin; at < end;) {
        while (batch_.offsets[row_ + 1] <= at) EndRow();
        const int64_t tile =
            std::min(at + kTilePositions, batch_.offsets[row_ + 1]) - at;
        if (!Add(at, at - begin, tile, &result->bad_version)) {
          result->status = CorrectStatus::kBadVersion;
          return;
        }
        at += tile;
        if ((at - batch_.offsets[row_]) % kSegmentPositions == 0) EndSegment();
      }
    }
    while (row_ < batch_.num_sequences) EndRow();
    for (size_t b = 0; b < kNumStalenessBuckets; ++b) {
      total_.buckets[b].log_ratio = log_ratios_[b].sum();
      total_.buckets[b].k3 = k3s_[b].sum();
    }
    total_.measured = 1;
    result->sums.staleness = total_;
    if (!result->partial.maxima.empty()) AddTo(&result->partial);
  }

 private:
  // Blocks of whole tiles.
  int64_t EndOfBlock(int64_t begin, int64_t positions) const {
    const int64_t end = begin + kBlock;
    if (end >= positions) return positions;
    const int64_t* const row =
        std::upper_bound(batch_.offsets,
                         batch_.offsets + batch_.num_sequences + 1, end) -
        1;
    return end - (end - *row) % kTilePositions;
  }

  void EndSegment() {
    for (size_t b = 0; b < kNumStalenessBuckets; ++b) {
      log_ratios_[b].add(segment_.log_ratio[b]);
      k3s_[b].add(segment_.k3[b]);
    }
    segment_.clear();
  }
  void EndRow() {
    EndSegment();
    ++row_;
  }

  void AddTo(PartialSums* partial) const {
    std::array<StalenessBins, kNumStalenessBuckets> bins;
    for (size_t b = 0; b < kNumStalenessBuckets; ++b) {
      std::copy_n(log_ratios_[b].bins().low, kBins, bins[b].log_ratio);
      std::copy_n(k3s_[b].bins().low, kBins, bins[b].k3);
    }
    AddStaleness(total_, bins.data(), partial);
  }

  // Finds the block's numbers, or copies them to the host.
  bool PlaceBlock(int64_t begin, int64_t count, std::string* error) {
    for (int r = 0; r < kNumTensors; ++r) {
      if (!plan_.spec.metrics || (plan_.inputs >> r & 1u) == 0) continue;
      const TensorView& view = batch_.tensors[r];
      if (!Find(view.data, SizeOf(view.dtype),
                (on_device_.roles >> r & 1u) != 0, begin, count, &inputs_[r],
                error)) {
        return false;
      }
    }
    if (!Find(batch_.response_mask, 1, on_device_.mask, begin, count, &mask_,
              error)) {
      return false;
    }
    if (versions_.of_positions == nullptr) return true;
    return Find(versions_.of_positions, kVersionBytes, on_device_.versions,
                begin, count, &read_versions_, error);
  }

  // A tensor's bytes of the block.
  struct BlockInput {
    const std::byte* data = nullptr;
    std::vector<std::byte> copy;
  };

  bool Find(const void* data, int64_t element, bool is_on_device, int64_t begin,
            int64_t count, BlockInput* place, std::string* error) {
    const std::byte* from =
        static_cast<const std::byte*>(data) + begin * element;
    place->data = from;
    if (!is_on_device) return true;
    const auto bytes = static_cast<size_t>(count * element);
    place->copy.resize(bytes);
    place->data = place->copy.data();
    return corrector_->CopyFromDevice(place->copy.data(), from, bytes, error);
  }

  // Adds `count` positions from `at`, `offset` in the block, all of the row.
  bool Add(int64_t at, int64_t offset, int64_t count, BadVersion* bad) {
    std::array<int64_t, kTilePositions> staleness;
    if (!Compare(at, offset, count, staleness.data(), bad)) return false;
    if (!plan_.spec.metrics) return true;
    std::array<float, kTilePositions> log_ratio{};
    std::array<float, kTilePositions> k3;
    const auto num = static_cast<size_t>(numerator(plan_.spec.drift_source));
    const auto den = static_cast<size_t>(denominator(plan_.spec.drift_source));
    for (int64_t i = 0; i < count; ++i) {
      const auto p = static_cast<size_t>(i);
      if (staleness[p] == kIgnored) continue;
      TokenInputs token{};
      for (size_t r = 0; r < token.size(); ++r) {
        if ((plan_.inputs >> r & 1u) == 0) continue;
        token[r] =
            NumberAt(inputs_[r].data, batch_.tensors[r].dtype, offset + i);
      }
      if (!Settle(plan_, &token)) staleness[p] = kIgnored;
      log_ratio[p] = token[num] - token[den];
    }
    kernels_.k3_of(log_ratio.data(), count, k3.data());
    Tile tile{};
    for (int64_t i = 0; i < count; ++i) {
      const auto p = static_cast<size_t>(i);
      if (staleness[p] >= 0) {
        tile.Add(Count(staleness[p]), i % kLanes, log_ratio[p], k3[p]);
      } else if (staleness[p] == kUnknown) {
        ++total_.unknown_tokens;
      }
    }
    tile.Fold(&segment_);
    return true;
  }

  // The sums of a tile, in the walk's order of addition.
  struct Tile {
    uint32_t used = 0;
    float log_ratio[kNumStalenessBuckets][kLanes];
    float k3[kNumStalenessBuckets][kLanes];

    void Add(size_t bucket, int64_t lane, float l, float k3_of_token) {
      used |= 1u << bucket;
      log_ratio[bucket][lane] += l;
      k3[bucket][lane] += k3_of_token;
    }
    void Fold(StalenessSegment* segment) const {
      for (int b = 0; b < kNumStalenessBuckets; ++b) {
        if ((used >> b & 1u) == 0) continue;
        segment->add(b, fold_tile(log_ratio[b]), fold_tile(k3[b]));
      }
    }
  };

  // Counts a token; returns its range.
  size_t Count(int64_t staleness) {
    const auto bucket =
        static_cast<size_t>(kStalenessPlaces.bucket_of(staleness));
    ++total_.buckets[bucket].tokens;
    total_.staleness += static_cast<double>(staleness);
    total_.max = std::max(total_.max, staleness);
    ++total_.histogram[kStalenessPlaces.histogram_of(staleness)];
    return bucket;
  }

  // The staleness of each position. Each version is read once: the memory may
  // be the client's, and change.
  bool Compare(int64_t at, int64_t offset, int64_t count, int64_t* staleness,
               BadVersion* bad) {
    for (int64_t i = 0; i < count; ++i) {
      if (mask_.data[offset + i] == std::byte{0}) {
        staleness[i] = kIgnored;
        continue;
      }
      const int64_t token = at + i - batch_.offsets[row_];
      const int64_t version = VersionAt(token, offset + i);
      if (version == kUnknown) {
        staleness[i] = kUnknown;
      } else if (version < 0 || version > versions_.trained) {
        *bad = {row_, token, version, versions_.trained,
                versions_.of_positions == nullptr};
        return false;
      } else {
        staleness[i] = versions_.trained - version;
      }
    }
    return true;
  }

  int64_t VersionAt(int64_t token, int64_t offset) {
    if (versions_.of_positions != nullptr) {
      int32_t version;
      std::memcpy(&version, read_versions_.data + offset * kVersionBytes,
                  sizeof(version));
      return version;
    }
    while (next_span_ < versions_.num_spans) {
      const VersionSpan& span = versions_.spans[next_span_];
      if (span.sequence > row_ || (span.sequence == row_ && span.end > token)) {
        return span.sequence == row_ && span.start <= token ? span.version
                                                            : kUnknown;
      }
      ++next_span_;
    }
    return kUnknown;
  }

  const Plan plan_;
  const Batch& batch_;
  const PolicyVersions& versions_;
  const DeviceInputs& on_device_;
  Corrector* const corrector_;
  const IsaKernels& kernels_;
  std::array<BlockInput, kNumTensors> inputs_;
  BlockInput mask_;
  BlockInput read_versions_;
  int64_t next_span_ = 0;
  int64_t row_ = 0;
  // Sums of the segment, and exact ones of all.
  StalenessSegment segment_{};
  std::array<ExactSum, kNumStalenessBuckets> log_ratios_;
  std::array<ExactSum, kNumStalenessBuckets> k3s_;
  StalenessSums total_{};
};

}  // namespace

int64_t StalenessScratchBytes(const CorrectionSpec& spec,
                              const DeviceInputs& on_device) {
  int64_t bytes = on_device.versions ? kBlock * kVersionBytes : 0;
  if (on_device.mask) bytes += kBlock;
  const uint32_t copied = on_device.roles & RequiredTensors(spec);
  for (int r = 0; r < kNumTensors; ++r) {
    if ((copied >> r & 1u) != 0) bytes += kBlock * SizeOf(DType::kF32);
  }
  return bytes;
}

void MeasureStaleness(const CorrectionSpec& spec, const Batch& batch,
                      const PolicyVersions& versions,
                      const DeviceInputs& on_device, Corrector* corrector,
                      const StopRequest& stop, CorrectResult* result) {
  const DefaultFloatModes modes;
  std::make_unique<StalenessPass>(spec, batch, versions, on_device, corrector)
      ->Run(stop, result);
}

}  // namespace counterweight::kernels
