#include "tests/gpu_check/works.h"

#include "kernels/corrector.h"
#include "kernels/methods.h"
#include "tests/benchmark/headline_spec.h"

namespace counterweight::kernels {
namespace {

Work OfMethod(const Method& method) {
  std::vector<SpecViolation> violations;
  return {std::string(method.name), MakeSpec(method, {}, &violations)};
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
  return {OfMethod(*FindMethod("token_tis")),
          OfMethod(*FindMethod("ppo_clip")),
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
