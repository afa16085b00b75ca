#include "server/engine/examination.h"

#include <algorithm>

#include "kernels/doctor/examine.h"

namespace counterweight::server {

bool CanExamine(const Tensors& tensors) {
  const int log_probs = tensors.has(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS) +
                        tensors.has(v1::TENSOR_ROLE_OLD_LOG_PROBS) +
                        tensors.has(v1::TENSOR_ROLE_CURRENT_LOG_PROBS);
  const bool on_host = !tensors.device && !tensors.on_device.mask &&
                       !tensors.on_device.versions &&
                       tensors.on_device.roles == 0;
  return log_probs >= 2 && on_host;
}

int64_t ExaminationBytes(int64_t num_sequences, int64_t num_positions) {
  // Records of each sequence: its mean advantage, and its group in order.
  constexpr int64_t kRowBytes = 64;
  constexpr int64_t kPositionBytes = 256;
  return kPositionBytes * std::min(num_positions, kMostExaminedPositions) +
         kRowBytes * num_sequences;
}

std::vector<Fault> FaultsOf(const kernels::Batch& batch) {
  std::vector<Fault> faults;
  for (const kernels::doctor::Finding& finding :
       kernels::doctor::Examine(batch, nullptr).findings) {
    faults.push_back({kernels::doctor::Describe(finding.name).text,
                      kernels::doctor::NameOf(finding.severity)});
  }
  return faults;
}

}  // namespace counterweight::server
