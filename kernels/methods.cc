#include "kernels/methods.h"

#include <cmath>
#include <string>

#include "kernels/methods/building_blocks.h"
#include "kernels/methods/rows.h"

namespace counterweight::kernels {

const std::vector<Method>& Methods() {
  static const auto* const kMethods = new std::vector<Method>(methods::Join(
      {methods::DecoupledRows(), methods::BypassRows(), methods::TrlRows(),
       methods::SkyrlRows(), methods::OpenrlhfRows(),
       methods::ClippedLossRows(), methods::SequenceLossRows(),
       methods::GatedLossRows(), methods::UnclippedLossRows(),
       methods::CorrectedLossRows()}));
  return *kMethods;
}

const Method* FindMethod(std::string_view name) {
  for (const Method& method : Methods()) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

CorrectionSpec MakeSpec(const Method& method,
                        const std::map<std::string, double>& overrides,
                        std::vector<ParameterViolation>* violations) {
  std::vector<double> values;
  for (const MethodParameter& parameter : method.parameters) {
    const auto found = overrides.find(std::string(parameter.name));
    values.push_back(found == overrides.end() ? parameter.default_value
                                              : found->second);
  }
  for (const auto& [name, value] : overrides) {
    bool known = false;
    for (const MethodParameter& parameter : method.parameters) {
      known = known || parameter.name == name;
    }
    if (!known) {
      violations->push_back(
          {name, std::string(method.name) + " has no such parameter"});
    } else if (std::isnan(value)) {
      violations->push_back({name, "must not be NaN"});
    }
  }
  return method.make(values);
}

}  // namespace counterweight::kernels
