#include "server/engine/codec_method.h"

#include <utility>

#include "server/engine/codec_config.h"
#include "server/engine/codec_counts.h"
#include "server/engine/codec_dialect.h"
#include "server/engine/codec_preset.h"
#include "server/engine/codec_sequence_filter.h"
#include "server/engine/codec_spec_fields.h"

namespace counterweight::server {
namespace {

Result<Method> ReadConfig(const v1::CorrectionConfig& config,
                          const RequestFacts& facts) {
  Result<kernels::CorrectionSpec> spec = DecodeConfig(config, facts);
  std::optional<RowFilter> filter =
      ReadSequenceFilter(config, &spec.violations);
  return {{.name = "config",
           .spec = spec.value,
           .row_filter = std::move(filter),
           .counts_use = CountsUseOf(config.policy_loss(), "method.config.")},
          std::move(spec.violations)};
}

Result<Method> Read(const v1::Method& method, const RequestFacts& facts,
                    std::span<const Dialect> dialects) {
  switch (method.method_case()) {
    case v1::Method::kPreset:
      return ReadPreset(method.preset(), facts);
    case v1::Method::kConfig:
      return ReadConfig(method.config(), facts);
    case v1::Method::kDialect:
      return ReadDialect(method.dialect(), facts, dialects);
    case v1::Method::METHOD_NOT_SET:
      break;
  }
  return {{}, {{"method", "is required: a preset, a config or a dialect"}}};
}

Violation ToViolation(const kernels::SpecViolation& violation,
                      v1::Method::MethodCase method) {
  switch (method) {
    case v1::Method::kPreset:
      return ToPresetViolation(violation);
    case v1::Method::kConfig:
      return ToConfigViolation(violation);
    case v1::Method::kDialect:
    case v1::Method::METHOD_NOT_SET:
      break;
  }
  return ToDialectViolation(violation);
}

}  // namespace

Result<Method> ReadMethod(const v1::Method& method, const RequestFacts& facts,
                          std::span<const Dialect> dialects) {
  Result<Method> result = Read(method, facts, dialects);
  // A config's invalid fields are independent; the effect of other invalid
  // arguments is unknown.
  if (method.has_config() || result.ok()) {
    for (const auto& violation : kernels::Validate(result.value.spec)) {
      result.violations.push_back(ToViolation(violation, method.method_case()));
    }
  }
  if (method.has_config()) {
    Result<std::vector<std::string>> names =
        ReadRuleNames(method.config(), result.value.spec);
    result.value.rule_names = std::move(names.value);
    result.violations.Append(names.violations);
  }
  return result;
}

}  // namespace counterweight::server
