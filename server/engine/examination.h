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

// A part of the mean k3 of a token, nats.
struct Cause {
  std::string name;  // "engine_staleness", "update" or "interaction"
  double k3;
};

// Results of a batch's examination.
struct Examined {
  std::vector<Fault> faults;
  // Causes of the sample's drift. One that needs log-probs which were not sent
  // is left out.
  std::vector<Cause> causes;
  // The causes, and where most of the drift lies, for a person; empty without
  // tokens.
  std::string why;
};

// True if all tensors are in host memory.
bool IsOnHost(const Tensors& tensors);

// True if the tensors have what the doctor needs: two log-probs, in host
// memory.
bool CanExamine(const Tensors& tensors);

// More positions take no more memory.
inline constexpr int64_t kMostExaminedPositions = 65536;

// Memory that ExamineBatch takes, in bytes.
int64_t ExaminationBytes(int64_t num_sequences, int64_t num_positions);

// Examines a batch with tensors that CanExamine, within milliseconds.
Examined ExamineBatch(const kernels::Batch& batch);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_EXAMINATION_H_
