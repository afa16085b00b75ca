#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/batch.h"
#include "kernels/plan/plan.h"
#include "kernels/walk/make_plan.h"
#include "server/engine/codec.h"
#include "server/engine/names.h"
#include "tests/server/decoded_answers.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/system_blocks.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;

struct Input {
  InputRole role;
  v1::TensorRole wire;
  std::string_view name;
  // One number for each of the request's four tokens.
  std::vector<float> values;
};

const std::vector<Input>& Inputs() {
  static const std::vector<Input>& inputs = *new std::vector<Input>{
      {InputRole::kRollout,
       v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS,
       "rollout",
       {-1.0f, -0.5f, -2.0f, -0.25f}},
      {InputRole::kOld,
       v1::TENSOR_ROLE_OLD_LOG_PROBS,
       "old",
       {-1.1f, -0.4f, -1.9f, -0.3f}},
      {InputRole::kCurrent,
       v1::TENSOR_ROLE_CURRENT_LOG_PROBS,
       "current",
       {-1.2f, -0.4f, -1.8f, -0.2f}},
      {InputRole::kRef,
       v1::TENSOR_ROLE_REF_LOG_PROBS,
       "reference",
       {-1.0f, -0.6f, -2.1f, -0.3f}},
      {InputRole::kAdvantages,
       v1::TENSOR_ROLE_ADVANTAGES,
       "advantages",
       {0.5f, 0.5f, -0.5f, -0.5f}},
  };
  return inputs;
}

bool Reads(uint32_t inputs, InputRole role) {
  return (inputs >> static_cast<int>(role) & 1u) != 0;
}

// A request of these inputs, bit r: InputRole r.
v1::CorrectRequest Make(const SystemBlock& block, uint32_t inputs,
                        bool weighs) {
  v1::CorrectRequest request;
  request.mutable_layout()->mutable_padded()->set_num_sequences(2);
  request.mutable_layout()->mutable_padded()->set_length(2);
  for (const Input& input : Inputs()) {
    if (Reads(inputs, input.role)) {
      AddNumbers(input.wire, input.values, &request);
    }
  }
  AddMask("\1\1\1\1", &request);
  v1::Dialect& dialect = *request.mutable_method()->mutable_dialect();
  dialect.set_system(std::string(block.system));
  *dialect.mutable_block() = Block(std::string(block.json));
  if (weighs) request.add_outputs(v1::TENSOR_ROLE_WEIGHTS);
  request.add_outputs(v1::TENSOR_ROLE_KEEP_MASK);
  if (block.has_loss) request.add_outputs(v1::TENSOR_ROLE_GRADIENT);
  return request;
}

// REQUIRES: the request is valid.
kernels::CorrectionSpec SpecOf(const v1::CorrectRequest& request) {
  return Decode(request, {}, {}).value.method.spec;
}

// A translation can choose policies by what was sent: this one sees all.
kernels::CorrectionSpec FirstSpec(const SystemBlock& block) {
  return SpecOf(Make(block, ~0u, false));
}

std::string Count(int number, std::string_view one) {
  return Concat(number, " ", one, number == 1 ? "" : "s");
}

std::string Listed(const std::vector<std::string_view>& names) {
  std::string listed;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) listed += i + 1 == names.size() ? " and " : ", ";
    listed += names[i];
  }
  return listed;
}

}  // namespace

v1::CorrectRequest RequestOf(const SystemBlock& block) {
  const kernels::CorrectionSpec spec = FirstSpec(block);
  return Make(block, kernels::MakePlan(spec).inputs,
              spec.weight.level != kernels::Level::kNone);
}

std::string CostOf(const SystemBlock& block) {
  const v1::CorrectRequest request = RequestOf(block);
  const kernels::CorrectionSpec spec = SpecOf(request);
  const kernels::Plan plan = kernels::MakePlan(spec);
  std::vector<std::string_view> read;
  int sent = 1;
  for (const Input& input : Inputs()) {
    if (!Reads(plan.inputs, input.role)) continue;
    sent += 4;
    if (input.role != InputRole::kAdvantages) read.push_back(input.name);
  }
  std::vector<std::string_view> written;
  int64_t answered = 0;
  const Decoded decoded = Decode(request, {}, {}).value;
  for (const v1::TensorRole role : decoded.outputs.roles) {
    written.push_back(role == v1::TENSOR_ROLE_WEIGHTS     ? "weights"
                      : role == v1::TENSOR_ROLE_KEEP_MASK ? "keep mask"
                                                          : "gradient");
    answered += OutputBytes(role, decoded.layout) / 4;
  }
  const int exps = std::popcount(plan.statistics_exps | plan.output_exps);
  std::string cost =
      Concat(block.calls, "; a token has ", sent, " bytes of inputs, ",
             Listed(read), " log-probs",
             Reads(plan.inputs, InputRole::kAdvantages) ? ", advantages" : "",
             " and the mask, and ", answered, " of outputs, ", Listed(written),
             "; ", Count(exps, "exponential"), " of ratios");
  if (spec.peer_sums) cost += " and 2 of log-probs, for metrics alone";
  const auto of_probabilities =
      std::count_if(spec.rules, spec.rules + spec.num_rules,
                    [](const kernels::RejectionRule& rule) {
                      return kernels::IsDivergence(rule.estimator) &&
                             rule.estimator != kernels::Estimator::kReverseK3;
                    });
  cost += Concat(
      ", ", Count(spec.num_rules, "rule"),
      of_probabilities > 0 ? Concat(", ", of_probabilities, " of probabilities")
                           : std::string(),
      "; ",
      plan.single_pass ? "outputs need one pass over a sequence"
                       : "outputs depend on sums over their sequence, which is "
                         "first read for those");
  return cost + ".";
}

}  // namespace counterweight::server
