#include "server/codec.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <string>
#include <utility>

#include "kernels/methods.h"
#include "kernels/metrics.h"
#include "server/codec_method.h"
#include "server/codec_tensors.h"

namespace counterweight::server {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;

bool IsLabel(const std::string& text) {
  constexpr size_t kMaxLength = 64;
  return !text.empty() && text.size() <= kMaxLength &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
         });
}

void CheckLabels(const v1::CorrectRequest& request, Violations* violations) {
  const std::string& id = request.request_id();
  const bool printable = std::all_of(
      id.begin(), id.end(), [](unsigned char c) { return c > 31 && c < 127; });
  if (id.size() > kMaxRequestIdBytes || !printable) {
    violations->push_back(
        {"request_id", "must be at most 128 bytes of printable ASCII"});
  }
  const v1::Labels& labels = request.labels();
  constexpr char kPattern[] = "must match [A-Za-z0-9_.-]{1,64}";
  if (!labels.run().empty() && !IsLabel(labels.run())) {
    violations->push_back({"labels.run", kPattern});
  }
  if (!labels.replica().empty() && !IsLabel(labels.replica())) {
    violations->push_back({"labels.replica", kPattern});
  }
  if (labels.has_policy_version() && labels.policy_version() < 0) {
    violations->push_back({"labels.policy_version", "must be >= 0"});
  }
}

// Parts of the contract that no method here can honour yet are refused by name:
// ignoring them would be a wrong answer. A seed is honoured by methods without
// random choices.
void RefuseUnused(const v1::CorrectRequest& request, Violations* violations) {
  const auto refuse = [&](bool present, const char* field) {
    if (!present) return;
    violations->push_back(
        {field, "is not used by this server yet; leave it out"});
  };
  refuse(request.has_global_counts(), "global_counts");
  refuse(request.group_ids_size() > 0, "group_ids");
  refuse(request.trajectory_ids_size() > 0, "trajectory_ids");
  refuse(request.version_spans_size() > 0, "version_spans");
}

kernels::NonFinitePolicy DecodePolicy(const v1::CorrectRequest& request,
                                      Violations* violations) {
  switch (static_cast<int>(request.non_finite_policy())) {
    case v1::NON_FINITE_POLICY_UNSPECIFIED:
    case v1::NON_FINITE_POLICY_REJECT:
      return kernels::NonFinitePolicy::kReject;
    case v1::NON_FINITE_POLICY_DROP:
      return kernels::NonFinitePolicy::kDrop;
    case v1::NON_FINITE_POLICY_NEUTRALIZE:
      return kernels::NonFinitePolicy::kNeutralize;
    default:
      violations->push_back(
          {"non_finite_policy", "is unknown: REJECT, DROP or NEUTRALIZE"});
      return kernels::NonFinitePolicy::kReject;
  }
}

void SetNativeReport(DecodedRequest* decoded) {
  decoded->report = [spec = decoded->spec, names = decoded->rule_names](
                        const kernels::BatchSums& sums, MetricMap* metrics,
                        Violations*) {
    *metrics = kernels::Metrics(spec, names, sums);
  };
}

void DecodePreset(const v1::Preset& preset, DecodedRequest* decoded,
                  Violations* violations) {
  const kernels::Method* method = kernels::FindMethod(preset.name());
  if (method == nullptr) {
    violations->push_back(
        {"method.preset.name", preset.name().empty()
                                   ? "is required; ListMethods tells the names"
                                   : "no method has this name; ListMethods "
                                     "tells the names"});
    return;
  }
  const std::map<std::string, double> overrides(preset.parameters().begin(),
                                                preset.parameters().end());
  std::vector<kernels::SpecViolation> found;
  decoded->spec = kernels::MakeSpec(*method, overrides, &found);
  if (found.empty()) {
    for (kernels::SpecViolation& violation : kernels::Validate(decoded->spec)) {
      found.push_back({"parameters", violation.field + " " + violation.reason});
    }
  }
  for (const kernels::SpecViolation& violation : found) {
    violations->push_back(
        {"method.preset." + violation.field, violation.reason});
  }
  decoded->rule_names = DefaultRuleNames(decoded->spec);
  decoded->method_name = preset.name();
}

void DecodeDialect(const v1::Dialect& block, const RequestFacts& facts,
                   DecodedRequest* decoded, Violations* violations) {
  const Dialect* dialect = FindDialect(block.system());
  if (dialect == nullptr) {
    std::string known;
    for (const Dialect& each : Dialects()) {
      known += (known.empty() ? "" : ", ") + std::string(each.system);
    }
    violations->push_back(
        {"method.dialect.system",
         "is not a dialect of this server, which speaks: " + known});
    return;
  }
  Translation translation =
      dialect->translate(block.block(), block.ignore_unknown_fields(), facts);
  violations->insert(violations->end(), translation.violations.begin(),
                     translation.violations.end());
  if (!translation.violations.empty()) return;
  decoded->spec = translation.spec;
  decoded->rule_names = std::move(translation.rule_names);
  decoded->warnings = std::move(translation.warnings);
  decoded->report = std::move(translation.report);
  decoded->method_name = block.system();
}

// True if decoded->spec is valid.
bool DecodeMethod(const v1::CorrectRequest& request, const TensorSet& tensors,
                  const LayoutInfo& layout, DecodedRequest* decoded,
                  Violations* violations) {
  const size_t before = violations->size();
  const v1::Method& method = request.method();
  switch (method.method_case()) {
    case v1::Method::kPreset:
      DecodePreset(method.preset(), decoded, violations);
      break;
    case v1::Method::kConfig: {
      const PresentLogProbs present{
          tensors.has(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS),
          tensors.has(v1::TENSOR_ROLE_OLD_LOG_PROBS),
          tensors.has(v1::TENSOR_ROLE_CURRENT_LOG_PROBS)};
      decoded->spec = DecodeConfig(method.config(), present, "method.config.",
                                   &decoded->rule_names, violations);
      decoded->method_name = "config";
      break;
    }
    case v1::Method::kDialect: {
      RequestFacts facts;
      facts.has_rollout_log_probs =
          tensors.has(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS);
      facts.has_old_log_probs = tensors.has(v1::TENSOR_ROLE_OLD_LOG_PROBS);
      facts.has_current_log_probs =
          tensors.has(v1::TENSOR_ROLE_CURRENT_LOG_PROBS);
      facts.has_advantages = tensors.has(v1::TENSOR_ROLE_ADVANTAGES);
      facts.wants_gradient =
          std::find(request.outputs().begin(), request.outputs().end(),
                    v1::TENSOR_ROLE_GRADIENT) != request.outputs().end();
      facts.num_sequences = layout.num_sequences;
      facts.padded_length = layout.padded_length;
      DecodeDialect(method.dialect(), facts, decoded, violations);
      break;
    }
    case v1::Method::METHOD_NOT_SET:
      violations->push_back(
          {"method", "is required: a preset, a config or a dialect"});
  }
  return violations->size() == before;
}

void DecodeOutputs(const v1::CorrectRequest& request, bool has_method,
                   DecodedRequest* decoded, Violations* violations) {
  const bool has_weights = decoded->spec.weight.level != kernels::Level::kNone;
  for (int i = 0; i < request.outputs_size(); ++i) {
    const auto role = static_cast<v1::TensorRole>(request.outputs(i));
    const std::string field = "outputs[" + std::to_string(i) + "]";
    if (std::find(decoded->outputs.begin(), decoded->outputs.end(), role) !=
        decoded->outputs.end()) {
      violations->push_back({field, "is asked for twice"});
      continue;
    }
    switch (static_cast<int>(role)) {
      case v1::TENSOR_ROLE_WEIGHTS:
        if (has_method && !has_weights) {
          violations->push_back(
              {field,
               "WEIGHTS were asked for, but the method has no "
               "importance weight"});
        }
        break;
      case v1::TENSOR_ROLE_KEEP_MASK:
      case v1::TENSOR_ROLE_TOKEN_REASONS:
      case v1::TENSOR_ROLE_SEQUENCE_REASONS:
        break;
      case v1::TENSOR_ROLE_GRADIENT:
        violations->push_back(
            {field,
             "this server computes no policy losses yet, so there is "
             "no GRADIENT"});
        break;
      default:
        violations->push_back(
            {field,
             "is not an output: WEIGHTS, KEEP_MASK, TOKEN_REASONS or "
             "SEQUENCE_REASONS"});
    }
    decoded->outputs.push_back(role);
  }
  if (request.outputs_size() == 0) {
    if (has_weights) decoded->outputs.push_back(v1::TENSOR_ROLE_WEIGHTS);
    decoded->outputs.push_back(v1::TENSOR_ROLE_KEEP_MASK);
  }
}

}  // namespace

Violations Decode(const v1::CorrectRequest& request,
                  const RequestLimits& limits, DecodedRequest* decoded) {
  Violations violations;
  CheckLabels(request, &violations);
  LayoutInfo layout;
  const bool has_layout = DecodeLayout(request.layout(), limits,
                                       &decoded->offsets, &layout, &violations);
  RefuseUnused(request, &violations);
  TensorSet tensors;
  DecodeTensors(request, has_layout ? &layout : nullptr, &tensors, &violations);
  const bool has_method =
      DecodeMethod(request, tensors, layout, decoded, &violations);
  DecodeOutputs(request, has_method, decoded, &violations);
  decoded->spec.non_finite = DecodePolicy(request, &violations);
  if (has_method) {
    const uint32_t inputs = kernels::RequiredTensors(decoded->spec);
    RequireTensors(inputs, tensors, &violations);
    WarnOfUnread(inputs, tensors, &decoded->warnings);
    if (!decoded->report) SetNativeReport(decoded);
  }
  if (!violations.empty()) return violations;
  decoded->num_positions = layout.num_positions;
  decoded->batch = tensors.batch;
  decoded->batch.num_sequences = layout.num_sequences;
  decoded->batch.offsets = decoded->offsets.data();
  return violations;
}

kernels::Outputs AllocateOutputs(const DecodedRequest& decoded,
                                 v1::CorrectResponse* response) {
  kernels::Outputs outputs;
  const auto positions = static_cast<size_t>(decoded.num_positions);
  const auto sequences = static_cast<size_t>(decoded.batch.num_sequences);
  for (const v1::TensorRole role : decoded.outputs) {
    v1::Tensor* tensor = response->add_tensors();
    tensor->set_role(role);
    std::string* data = tensor->mutable_data();
    if (role == v1::TENSOR_ROLE_WEIGHTS) {
      tensor->set_dtype(v1::D_TYPE_F32);
      data->resize(positions * sizeof(float));
      outputs.weights = reinterpret_cast<float*>(data->data());
    } else if (role == v1::TENSOR_ROLE_KEEP_MASK) {
      tensor->set_dtype(v1::D_TYPE_U8);
      data->resize(positions);
      outputs.keep_mask = reinterpret_cast<uint8_t*>(data->data());
    } else if (role == v1::TENSOR_ROLE_TOKEN_REASONS) {
      tensor->set_dtype(v1::D_TYPE_U16);
      data->resize(positions * sizeof(uint16_t));
      outputs.token_reasons = reinterpret_cast<uint16_t*>(data->data());
    } else if (role == v1::TENSOR_ROLE_SEQUENCE_REASONS) {
      tensor->set_dtype(v1::D_TYPE_U16);
      data->resize(sequences * sizeof(uint16_t));
      outputs.sequence_reasons = reinterpret_cast<uint16_t*>(data->data());
    }
  }
  return outputs;
}

Violations Encode(const DecodedRequest& decoded, const kernels::BatchSums& sums,
                  v1::CorrectResponse* response) {
  Violations violations;
  MetricMap metrics;
  decoded.report(sums, &metrics, &violations);
  if (!violations.empty()) return violations;
  response->mutable_metrics()->insert(metrics.begin(), metrics.end());
  for (int r = 0; r < decoded.spec.num_rules; ++r) {
    v1::RuleSummary* rule = response->add_rules();
    rule->set_name(decoded.rule_names[static_cast<size_t>(r)]);
    rule->set_dropped_tokens(sums.rules[r].dropped_tokens);
    rule->set_dropped_sequences(sums.rules[r].dropped_sequences);
  }
  response->set_non_finite_tokens(sums.non_finite_tokens);
  response->set_numerics_version(kernels::kNumericsVersion);
  response->mutable_warnings()->Add(decoded.warnings.begin(),
                                    decoded.warnings.end());
  return violations;
}

void EncodeMethods(v1::ListMethodsResponse* response) {
  for (const kernels::Method& method : kernels::Methods()) {
    v1::MethodInfo* info = response->add_methods();
    info->set_name(std::string(method.name));
    info->set_origin(std::string(method.origin));
    info->set_origin_name(std::string(method.origin_name));
    info->set_summary(std::string(method.summary));
    info->set_reference(std::string(method.reference));
    std::vector<kernels::SpecViolation> violations;
    EncodeConfig(kernels::MakeSpec(method, {}, &violations),
                 info->mutable_config());
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
