#include "tests/gpu_check/works.h"

#include "kernels/corrector.h"
#include "kernels/methods.h"
#include "tests/benchmark/headline_spec.h"

namespace counterweight::kernels {
namespace {

Work OfMethod(const Method& method) {
  std::vector<ParameterViolation> violations;
  return {std::string(method.name), MakeSpec(method, {}, &violations)};
}

Work WithoutMetrics(Work work) {
  work.name += ", no metrics";
  work.spec.metrics = false;
  return work;
}

bool IsTarget(std::string_view name) {
  return name == "token_tis" || name == "ppo_clip";
}

}  // namespace

int64_t Work::input_bytes() const {
  int64_t bytes = 1;  // response_mask
  for (int role = 0; role < kNumInputRoles; ++role) {
    bytes += (RequiredTensors(spec) >> role & 1u) != 0 ? 4 : 0;
  }
  return bytes;
}

std::vector<Work> TargetWorks() {
  const Work weights = OfMethod(*FindMethod("token_tis"));
  const Work loss = OfMethod(*FindMethod("ppo_clip"));
  return {weights,
          WithoutMetrics(weights),
          loss,
          WithoutMetrics(loss),
          {"token_tis+3_rules", HeadlineSpec()}};
}

std::vector<Work> OtherWorks() {
  std::vector<Work> works;
  for (const Method& method : Methods()) {
    if (!IsTarget(method.name)) works.push_back(OfMethod(method));
  }
  return works;
}

}  // namespace counterweight::kernels
