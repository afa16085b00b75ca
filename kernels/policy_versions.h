// Versions of the policies that sampled a batch's tokens. Views: nothing here
// owns memory.
#ifndef COUNTERWEIGHT_KERNELS_POLICY_VERSIONS_H_
#define COUNTERWEIGHT_KERNELS_POLICY_VERSIONS_H_

#include <cstdint>

namespace counterweight::kernels {

// Positions [start, end) of row `sequence`, sampled by one version.
struct VersionSpan {
  int64_t sequence;
  int64_t start;
  int64_t end;
  int64_t version;  // >= 0
};

// The versions of the policy that sampled a batch, by position or by span.
struct PolicyVersions {
  // Version of the policy being trained, >= 0.
  int64_t trained = 0;
  // [num_positions] int32 of any alignment, -1: unknown. Null: spans have them.
  const void* of_positions = nullptr;
  // [num_spans], ascending by sequence and start, without overlap; positions
  // without a span are unknown.
  const VersionSpan* spans = nullptr;
  int64_t num_spans = 0;
  bool came = false;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_POLICY_VERSIONS_H_
