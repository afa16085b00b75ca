#include "server/engine/codec_preset.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/methods.h"
#include "server/engine/codec_calm_bound.h"
#include "server/engine/codec_config.h"
#include "server/engine/codec_counts.h"
#include "server/engine/codec_loss.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

std::string UnknownPreset(const std::string& name) {
  if (name.empty()) return "is required; ListMethods tells the names";
  std::vector<std::string_view> names;
  for (const kernels::Method& method : kernels::Methods()) {
    names.push_back(method.name);
  }
  return Concat("No preset is called ", Quote(name), ". ",
                DidYouMean(name, names), "ListMethods tells the names.");
}

// Removes parameters that `method` lacks; each is a violation.
void RefuseUnknownParameters(const kernels::Method& method,
                             std::map<std::string, double>* parameters,
                             Violations* violations) {
  std::vector<std::string_view> names;
  names.reserve(method.parameters.size());
  for (const kernels::MethodParameter& parameter : method.parameters) {
    names.push_back(parameter.name);
  }
  const std::string all = names.empty()
                              ? "It takes none."
                              : Concat("It takes ", JoinNames(names), ".");
  std::erase_if(*parameters, [&](const auto& parameter) {
    const std::string& name = parameter.first;
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return false;
    }
    // Advice takes time, so violations that are only counted have none.
    const bool is_told = violations->size() < Violations::kMaxKept;
    violations->push_back(
        {"method.preset.parameters[" + name + "]",
         Concat(method.name, " has no such parameter. ",
                is_told ? DidYouMean(name, names) : std::string(), all)});
    return true;
  });
}

}  // namespace

Result<Method> ReadPreset(const v1::Preset& preset, const RequestFacts& facts) {
  const kernels::Method* row = kernels::FindMethod(preset.name());
  if (row == nullptr) {
    return {{}, {{"method.preset.name", UnknownPreset(preset.name())}}};
  }
  Result<Method> result;
  Method& method = result.value;
  std::map<std::string, double> parameters(preset.parameters().begin(),
                                           preset.parameters().end());
  RefuseUnknownParameters(*row, &parameters, &result.violations);
  std::vector<kernels::ParameterViolation> found;
  method.name = preset.name();
  method.spec = kernels::MakeSpec(*row, parameters, &found);
  method.spec.loss.seed = facts.seed;
  method.counts_use = CountsUseOf(preset.policy_loss(), "method.preset.");
  DecodeLoss(preset.has_policy_loss() ? &preset.policy_loss() : nullptr,
             preset.has_kl_penalty() ? &preset.kl_penalty() : nullptr, facts,
             "method.preset.", &method.spec, &result.violations);
  for (const kernels::ParameterViolation& violation : found) {
    result.violations.push_back(
        {"method.preset.parameters[" + violation.parameter + "]",
         violation.reason});
  }
  if (!preset.calm_quantiles().empty()) {
    result.violations.push_back(
        {"method.preset.calm_quantiles", kNoCalmBoundHere});
  }
  method.rule_names = DefaultRuleNames(method.spec);
  return result;
}

}  // namespace counterweight::server
