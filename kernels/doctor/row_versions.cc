#include "kernels/doctor/row_versions.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

namespace counterweight::kernels::doctor {
namespace {

bool IsFreshByPosition(const PolicyVersions& versions,
                       std::span<const int64_t> places) {
  const auto* const bytes = static_cast<const uint8_t*>(versions.of_positions);
  return std::all_of(places.begin(), places.end(), [&](int64_t place) {
    int32_t version;
    std::memcpy(&version, bytes + place * 4, sizeof(version));
    return version == versions.trained;
  });
}

// `begin`: the row's first position in the batch.
bool IsFreshBySpan(const PolicyVersions& versions, int64_t sequence,
                   int64_t begin, std::span<const int64_t> places) {
  const std::span spans(versions.spans,
                        static_cast<size_t>(versions.num_spans));
  auto span = std::partition_point(
      spans.begin(), spans.end(),
      [&](const VersionSpan& each) { return each.sequence < sequence; });
  for (const int64_t place : places) {
    const int64_t position = place - begin;
    while (span != spans.end() && span->sequence == sequence &&
           span->end <= position) {
      ++span;
    }
    const bool is_known = span != spans.end() && span->sequence == sequence &&
                          span->start <= position;
    if (!is_known || span->version != versions.trained) return false;
  }
  return true;
}

}  // namespace

bool IsFresh(const Batch& batch, const Sample& sample, const SampledRow& row) {
  if (batch.versions == nullptr || !batch.versions->came) return false;
  const std::span places(sample.place.data() + row.begin,
                         static_cast<size_t>(row.size()));
  if (batch.versions->of_positions != nullptr) {
    return IsFreshByPosition(*batch.versions, places);
  }
  return IsFreshBySpan(*batch.versions, row.sequence,
                       batch.offsets[row.sequence], places);
}

}  // namespace counterweight::kernels::doctor
