#include "kernels/doctor/examination.h"

#include <algorithm>

#include "kernels/doctor/tensor_reader.h"
#include "kernels/math/bits.h"

namespace counterweight::kernels::doctor {

Stream Examination::stream(int index) const {
  switch (streams.roles[index]) {
    case InputRole::kRollout:
      return Stream::kRollout;
    case InputRole::kOld:
      return Stream::kOld;
    case InputRole::kCurrent:
      return Stream::kCurrent;
    case InputRole::kAdvantages:
      return Stream::kAdvantages;
    case InputRole::kRef:
    case InputRole::kMeans:
    case InputRole::kOtherMeans:
    case InputRole::kZeros:
      break;
  }
  return Stream::kNone;
}

int64_t Examination::CountPositive(int index) const {
  const int64_t total = batch.offsets[batch.num_sequences];
  float values[kMostStreams][kMostCounted];
  int64_t positive = 0;
  for (int64_t begin = 0; begin < total; begin += kMostCounted) {
    const int64_t piece = std::min(total - begin, kMostCounted);
    for (int s = 0; s < streams.count; ++s) {
      Read(streams.tensors[s], begin, piece, values[s]);
    }
    for (int64_t i = 0; i < piece; ++i) {
      bool counts_here = batch.response_mask[begin + i] != 0;
      for (int s = 0; s < streams.count; ++s) {
        counts_here = counts_here && is_finite(values[s][i]);
      }
      positive += counts_here && values[index][i] > kPositive;
    }
  }
  return positive;
}

bool Examination::pair_is_equal() const {
  return counts.tokens >= 4 && static_cast<double>(counts.equal[0]) >=
                                   0.999 * static_cast<double>(counts.tokens);
}

Finding& Examination::Add(Name name, double confidence, Stream of) {
  Finding finding;
  finding.name = name;
  finding.severity = Describe(name).severity;
  finding.confidence = std::clamp(confidence, 0.0, 1.0);
  finding.stream = of;
  found.add(name);
  findings.push_back(finding);
  return findings.back();
}

void Examination::SetExample(int64_t index, Finding* finding) const {
  if (index < 0) return;
  const int64_t place = sample.place[static_cast<size_t>(index)];
  const int64_t* const end = batch.offsets + batch.num_sequences + 1;
  const int64_t* const after = std::upper_bound(batch.offsets, end, place);
  finding->sequence = after - batch.offsets - 1;
  finding->position = place - batch.offsets[finding->sequence];
}

}  // namespace counterweight::kernels::doctor
