// Encodes the methods table.
#include <string>
#include <utility>
#include <vector>

#include "kernels/methods.h"
#include "server/engine/codec.h"
#include "server/engine/codec_config.h"
#include "server/engine/equivalents.h"

namespace counterweight::server {

void EncodeMethods(v1::ListMethodsResponse* response) {
  for (const kernels::Method& method : kernels::Methods()) {
    v1::MethodInfo* info = response->add_methods();
    info->set_name(std::string(method.name));
    info->set_origin(std::string(method.origin));
    info->set_origin_name(std::string(method.origin_name));
    info->set_summary(std::string(method.summary));
    info->set_formula(std::string(method.formula));
    info->set_when_to_use(std::string(method.when_to_use));
    info->set_reference(std::string(method.reference));
    for (const Equivalent& equivalent : EquivalentsOf(method.name)) {
      if (!equivalent.differences.empty()) continue;
      (*info->mutable_equivalents())[std::string(equivalent.system)] =
          std::string(equivalent.block);
    }
    std::vector<kernels::ParameterViolation> violations;
    if (auto config =
            EncodeConfig(kernels::MakeSpec(method, {}, &violations))) {
      *info->mutable_config() = *std::move(config);
    }
    for (const kernels::MethodParameter& parameter : method.parameters) {
      v1::ParameterInfo* entry = info->add_parameters();
      entry->set_name(std::string(parameter.name));
      entry->set_unit(std::string(parameter.unit));
      entry->set_default_value(parameter.default_value);
      entry->set_description(std::string(parameter.description));
    }
  }
}

}  // namespace counterweight::server
