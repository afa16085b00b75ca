#include "kernels/doctor/examine.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/doctor/examination.h"
#include "kernels/doctor/tensor_reader.h"
#include "kernels/math/bits.h"

namespace counterweight::kernels::doctor {
namespace {

Streams FindStreams(const Batch& batch) {
  Streams streams;
  for (const InputRole role :
       {InputRole::kRollout, InputRole::kOld, InputRole::kCurrent}) {
    if (batch.tensor(role).data == nullptr) continue;
    streams.roles[streams.count] = role;
    streams.tensors[streams.count] = batch.tensor(role);
    ++streams.count;
  }
  return streams;
}

// The tensor's own elements from `begin` on, if they are aligned floats.
const float* InPlace(const TensorView& tensor, int64_t begin) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  if (tensor.dtype != DType::kF32 || address % alignof(float) != 0) {
    return nullptr;
  }
  return static_cast<const float*>(tensor.data) + begin;
}

// The facts over every token.
Counts CountAll(const Batch& batch, const Streams& streams) {
  Counts counts = {};
  const Passes& passes = BestPasses();
  const int64_t total = batch.offsets[batch.num_sequences];
  alignas(64) float values[kMostStreams][kMostCounted];
  alignas(64) uint8_t mask[kMostCounted];
  const float* pointers[kMostStreams] = {};
  for (int64_t begin = 0; begin < total; begin += kMostCounted) {
    const int64_t n = std::min(total - begin, kMostCounted);
    const int64_t full = (n + kPassLanes - 1) / kPassLanes * kPassLanes;
    for (int s = 0; s < streams.count; ++s) {
      pointers[s] = InPlace(streams.tensors[s], begin);
      if (pointers[s] != nullptr && n == full) continue;
      Read(streams.tensors[s], begin, n, values[s]);
      std::fill(values[s] + n, values[s] + full, 0.0f);
      pointers[s] = values[s];
    }
    const uint8_t* of_positions = batch.response_mask + begin;
    if (n < full) {
      std::copy_n(of_positions, n, mask);
      std::fill(mask + n, mask + full, uint8_t{0});
      of_positions = mask;
    }
    passes.count(pointers, of_positions, full, &counts);
  }
  return counts;
}

// The first token of the mask that is not finite.
void SetNonFiniteExample(const Examination& e, Finding* finding) {
  for (int64_t row = 0; row < e.batch.num_sequences; ++row) {
    for (int64_t i = e.batch.offsets[row]; i < e.batch.offsets[row + 1]; ++i) {
      if (e.batch.response_mask[i] == 0) continue;
      for (int s = 0; s < e.streams.count; ++s) {
        if (is_finite(At(e.streams.tensors[s], i))) continue;
        finding->stream = e.stream(s);
        finding->sequence = row;
        finding->position = i - e.batch.offsets[row];
        return;
      }
    }
  }
}

void CountNonFinite(Examination* e) {
  if (e->counts.non_finite == 0) return;
  Finding& finding = e->Add(Name::kNonFinite, 1.0);
  finding.evidence = {{"tokens", static_cast<double>(e->counts.non_finite)}};
  SetNonFiniteExample(*e, &finding);
}

void ExamineSample(Examination* e) {
  const Passes& passes = BestPasses();
  passes.sum_pairs(e->sample.Pair(0, 1), e->pair);
  if (e->has_third()) passes.sum_repairs(e->sample.Pair(1, 2), e->later_pair);
  e->rows = FindRowFacts(e->sample);
  ExactRules(e);
  RepairRules(e);
  CountRule(e);
  TailRule(e);
  PermutedRule(e);
  UnmatchedRule(e);
  ZeroRules(e);
  DuplicateRule(e);
  constexpr Names kGross =
      kRepaired | Names{Name::kRowsPermuted,     Name::kCountOffByOne,
                        Name::kSentinel,         Name::kMaskCoversPrompt,
                        Name::kMaskEarly,        Name::kMaskCoversPadding,
                        Name::kMaskLate,         Name::kLastTokenMissing,
                        Name::kPositiveLogProbs, Name::kOldEqualsRollout,
                        Name::kTailRetokenised,  Name::kUnmatched};
  if (e->found.meets(kGross)) return;
  StatisticRules(e);
  CurrentRule(e);
}

}  // namespace

Diagnosis Examine(const Batch& batch, const int64_t* group_ids) {
  Examination e;
  e.batch = batch;
  e.group_ids = group_ids;
  e.streams = FindStreams(batch);
  e.counts = CountAll(batch, e.streams);
  CountNonFinite(&e);
  if (e.counts.tokens == 0) {
    if (e.counts.non_finite == 0) e.Add(Name::kNoTokens, 1.0, Stream::kMask);
  } else {
    e.sample = TakeSample(batch, e.streams);
    if (e.n() > 0) ExamineSample(&e);
    AdvantageRules(&e);
  }
  Diagnosis diagnosis = {std::move(e.findings), e.counts.tokens, e.n(),
                         static_cast<int64_t>(e.sample.rows.size()),
                         std::nullopt};
  if (e.n() > 0) {
    AttributionSums sums(e.streams);
    sums.Add(batch, e.sample);
    diagnosis.attribution = sums.Read();
  }
  return diagnosis;
}

}  // namespace counterweight::kernels::doctor
