// The doctor's look at a batch that is corrected.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_EXAMINATION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_EXAMINATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/batch.h"
#include "server/engine/codec_tensors.h"

namespace counterweight::server {

// One fault of a batch; kernels/doctor/FINDINGS.md has its meaning.
struct Fault {
  std::string name;
  std::string severity;  // "error", "warning" or "note"
};

// True if the tensors have what the doctor needs: two log-probs, in host
// memory.
bool CanExamine(const Tensors& tensors);

// More positions take no more memory.
inline constexpr int64_t kMostExaminedPositions = 65536;

// Memory that FaultsOf takes, in bytes.
int64_t ExaminationBytes(int64_t num_sequences, int64_t num_positions);

// Examines a batch with tensors that CanExamine, within milliseconds.
std::vector<Fault> FaultsOf(const kernels::Batch& batch);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_EXAMINATION_H_
