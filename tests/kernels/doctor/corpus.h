// Batches of tests/golden/doctor with known faults.
#ifndef COUNTERWEIGHT_TESTS_KERNELS_DOCTOR_CORPUS_H_
#define COUNTERWEIGHT_TESTS_KERNELS_DOCTOR_CORPUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/batch.h"
#include "kernels/doctor/examine.h"

namespace counterweight::kernels::doctor {

// One batch, packed, with rollout, old and current log-probs and advantages.
struct Case {
  std::string fault;  // or "healthy"
  // At least one of these names must be found.
  std::vector<std::string> expected;
  // The source, and how the fault was made.
  std::string origin;
  std::vector<int64_t> offsets;
  std::vector<int64_t> group_ids;
  // Values of rollout, old, current, advantages.
  std::vector<float> values[4];
  std::vector<uint8_t> mask;
  std::vector<int32_t> versions;

  bool is_healthy() const { return fault == "healthy"; }
};

// A case in the kernels' types; the batch points into `of`.
struct View {
  PolicyVersions versions;
  Batch batch;
};
void MakeView(const Case& of, View* view);

Diagnosis ExamineCase(const Case& of);
std::vector<std::string> NamesOf(const Diagnosis& diagnosis);

const std::vector<Case>& Corpus();

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_TESTS_KERNELS_DOCTOR_CORPUS_H_
