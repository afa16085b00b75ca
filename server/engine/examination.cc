#include "server/engine/examination.h"

#include <algorithm>

#include "kernels/averages.h"
#include "kernels/doctor/examine.h"

namespace counterweight::server {

bool IsOnHost(const Tensors& tensors) {
  return !tensors.device && !tensors.on_device.mask &&
         !tensors.on_device.versions && tensors.on_device.roles == 0;
}

bool CanExamine(const Tensors& tensors) {
  const int log_probs = tensors.has(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS) +
                        tensors.has(v1::TENSOR_ROLE_OLD_LOG_PROBS) +
                        tensors.has(v1::TENSOR_ROLE_CURRENT_LOG_PROBS);
  return log_probs >= 2 && IsOnHost(tensors);
}

int64_t ExaminationBytes(int64_t num_sequences, int64_t num_positions) {
  // Records of each sequence: its mean advantage, and its group in order.
  constexpr int64_t kRowBytes = 64;
  constexpr int64_t kPositionBytes = 256;
  return kPositionBytes * std::min(num_positions, kMostExaminedPositions) +
         kRowBytes * num_sequences;
}

Examined ExamineBatch(const kernels::Batch& batch) {
  const kernels::doctor::Diagnosis found =
      kernels::doctor::Examine(batch, nullptr);
  Examined examined;
  for (const kernels::doctor::Finding& finding : found.findings) {
    examined.faults.push_back({kernels::doctor::Describe(finding.name).text,
                               kernels::doctor::NameOf(finding.severity)});
  }
  if (!found.attribution) return examined;
  const kernels::doctor::Causes& causes = found.attribution->causes;
  const auto add = [&](const char* name, double k3) {
    // NaN: unknown.
    if (!(k3 == k3)) return;
    examined.causes.push_back(
        {name, kernels::Mean(k3, found.attribution->tokens)});
  };
  add("engine_staleness", causes.k3_engine_staleness);
  add("update", causes.k3_update);
  add("interaction", causes.k3_interaction);
  examined.why = kernels::doctor::Sentence(*found.attribution);
  return examined;
}

}  // namespace counterweight::server
