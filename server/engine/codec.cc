#include "server/engine/codec.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/metrics.h"
#include "server/engine/codec_enums.h"
#include "server/engine/codec_fields.h"
#include "server/engine/codec_labels.h"
#include "server/engine/codec_memory.h"
#include "server/engine/codec_method.h"
#include "server/engine/codec_outputs.h"
#include "server/engine/codec_tensors.h"
#include "server/engine/codec_versions.h"
#include "server/engine/codec_warnings.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

// Unsupported parts of the contract are refused by name: ignoring them would be
// a wrong answer. Methods without random choices accept a seed.
void RefuseUnused(const v1::CorrectRequest& request, Violations* violations) {
  const auto refuse = [&](bool present, const char* field) {
    if (!present) return;
    violations->push_back(
        {field, "is not used by this server yet; leave it out"});
  };
  refuse(request.trajectory_ids_size() > 0, "trajectory_ids");
  for (const auto& [is_sent, field] :
       {std::pair(request.has_audit(), "audit"),
        std::pair(request.shadows_size() > 0, "shadows")}) {
    if (!is_sent) continue;
    violations->push_back({field, "is read by Diagnose alone; leave it out"});
  }
}

bool AsksFor(const v1::CorrectRequest& request, v1::TensorRole role) {
  return std::find(request.outputs().begin(), request.outputs().end(), role) !=
         request.outputs().end();
}

// Numbers of a shape that a method reads.
struct ShapeReads {
  bool rows = false;
  bool width = false;
};

// The method without its loss; a dialect's is not translated at all.
void OmitLoss(const v1::CorrectRequest& request, Method* method,
              Violations* violations) {
  const auto refuse = [&](bool asks, const char* field) {
    if (!asks) return;
    violations->push_back(
        {field,
         "is of the loss, which omit_loss leaves out; drop one of them"});
  };
  const bool wants_gradient = AsksFor(request, v1::TENSOR_ROLE_GRADIENT);
  refuse(request.compute_loss(), "compute_loss");
  refuse(wants_gradient, "outputs");
  method->counts_use.is_global = false;
  method->counts_use.omits_loss = true;
  // Such a method has its loss, or would be refused for having none too.
  if (request.compute_loss() || wants_gradient) return;
  method->spec.loss = {};
}

// A native method always computes its loss, if it has one.
void CheckComputesLoss(const v1::CorrectRequest& request,
                       const kernels::CorrectionSpec& spec,
                       Violations* violations) {
  if (!request.compute_loss() ||
      spec.loss.surrogate != kernels::Surrogate::kNone) {
    return;
  }
  violations->push_back(
      {"compute_loss", "this method has no policy loss; leave it out"});
}

// Groups are numbered in the order in which they first appear.
Result<Groups> ReadGroups(const v1::CorrectRequest& request,
                          const Layout& layout, const Result<Method>& method) {
  Result<Groups> result{method.value.groups};
  const bool uses_ids = method.value.uses_group_ids;
  if (request.group_ids_size() == 0 && !uses_ids) return result;
  if (request.group_ids_size() != layout.num_sequences) {
    result.violations.push_back(
        {"group_ids", "must have one entry per sequence"});
  } else if (method.ok() && !uses_ids) {
    result.violations.push_back(
        {"group_ids", "is not read by this method; leave it out"});
  } else {
    std::map<int64_t, int32_t> index;
    for (const int64_t id : request.group_ids()) {
      const auto next = static_cast<int32_t>(index.size());
      result.value.of_rows.push_back(index.try_emplace(id, next).first->second);
    }
    result.value.count = static_cast<int64_t>(index.size());
  }
  return result;
}

// True if the method's rules and spec, and what a request's shape decides
// beside them, are those of every shape.
bool IsOfAnyShape(const v1::CorrectRequest& request, const Method& method,
                  const Versions& versions, const ShapeReads& reads) {
  return !reads.rows && !reads.width && !method.uses_group_ids &&
         !versions.came && !method.spec.loss.counts_padding &&
         request.group_ids_size() == 0 && request.row_divisors_size() == 0;
}

// Losses that include the padding need a batch with padding.
Violations CheckPadding(const kernels::LossSpec& loss, const Layout& layout) {
  if (!loss.counts_padding) return {};
  // ReadLayout bounds the product.
  if (layout.num_positions == layout.num_sequences * layout.padded_length) {
    return {};
  }
  return {{"layout.packed",
           "this block's answer includes the padding of a padded batch; send "
           "the batch padded"}};
}

bool IsOnDevice(const Tensors& tensors) {
  return tensors.on_device.roles != 0 || tensors.on_device.mask;
}

// The host reads these tensors and the mask before the correction: they may not
// lie on a device. what: completes "method".
Violations CheckOnHost(uint32_t roles, std::string_view what,
                       const Tensors& tensors) {
  const kernels::DeviceInputs& on_device = tensors.on_device;
  if ((on_device.roles & roles) == 0 && !on_device.mask) return {};
  return {{"method", Concat(what,
                            " before anything else, which needs log-probs and "
                            "mask in host memory; copy them from the device")}};
}

// True if the correction itself reads derived tensors.
bool ReadsDerived(const Method& method) {
  return !method.derived.empty() &&
         (RolesOf(method.derived) & kernels::RequiredTensors(method.spec)) != 0;
}

// The tensors of the request that the method reads; finds wrong places of those
// that the host reads.
uint32_t ReadInputs(const Method& method, const Tensors& tensors,
                    Violations* violations) {
  uint32_t inputs = kernels::RequiredTensors(method.spec);
  inputs &= ~RolesOf(method.derived);
  inputs |= SourcesOf(method.derived);
  if (ReadsDerived(method)) {
    violations->Append(
        CheckOnHost(SourcesOf(method.derived), "makes tensors", tensors));
  }
  if (kernels::ReadsTurnMeans(method.spec)) {
    violations->Append(
        CheckOnHost(inputs, "computes means over turns", tensors));
  }
  if (const auto& filter = method.row_filter) {
    inputs |= TensorsOf(*filter);
    violations->Append(
        CheckOnHost(TensorsOf(*filter), "drops sequences", tensors));
  }
  violations->Append(RequireTensors(inputs, tensors));
  return inputs;
}

}  // namespace

RequestFacts FactsOf(const v1::CorrectRequest& request,
                     const Tensors& tensors) {
  RequestFacts of;
  of.has_rollout_log_probs = tensors.has(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS);
  of.has_old_log_probs = tensors.has(v1::TENSOR_ROLE_OLD_LOG_PROBS);
  of.has_current_log_probs = tensors.has(v1::TENSOR_ROLE_CURRENT_LOG_PROBS);
  of.has_ref_log_probs = tensors.has(v1::TENSOR_ROLE_REF_LOG_PROBS);
  of.has_advantages = tensors.has(v1::TENSOR_ROLE_ADVANTAGES);
  of.has_group_ids = request.group_ids_size() > 0;
  of.wants_loss =
      request.compute_loss() || AsksFor(request, v1::TENSOR_ROLE_GRADIENT);
  of.seed = request.seed();
  of.has_global_counts = request.has_global_counts();
  return of;
}

Result<Decoded> Decode(const v1::CorrectRequest& request,
                       const RequestLimits& limits,
                       const PayloadSource& source) {
  Violations violations;
  const auto is_wanted = [&] {
    return !source.is_wanted || source.is_wanted();
  };
  CheckLabels(request.request_id(), request.labels(), &violations);
  Result<Layout> layout = ReadLayout(request.layout(), limits);
  violations.Append(layout.violations);
  RefuseUnused(request, &violations);
  if (!is_wanted()) return {};
  Result<Tensors> tensors = ReadTensors(request, layout, source);
  violations.Append(tensors.violations);
  if (!is_wanted()) return {};
  Result<Versions> versions = ReadVersions(request, layout, tensors.value);
  violations.Append(versions.violations);
  ShapeReads reads;
  RequestFacts facts = FactsOf(request, tensors.value);
  facts.num_sequences = {layout.value.num_sequences, &reads.rows};
  facts.padded_length = {layout.value.padded_length, &reads.width};
  Result<Method> method = ReadMethod(request.method(), facts);
  violations.Append(method.violations);
  if (request.omit_loss()) OmitLoss(request, &method.value, &violations);
  kernels::CorrectionSpec& spec = method.value.spec;
  std::vector<std::string> warnings = std::move(method.value.warnings);
  if (method.value.counts_use.is_global && !request.has_global_counts()) {
    violations.push_back(
        {"global_counts", "is required by policy_loss.denominator GLOBAL"});
  }
  Result<StatedCounts> stated;
  Result<std::vector<double>> row_divisors;
  if (method.ok()) {
    const CountsUse& use = method.value.counts_use;
    stated = ApplyCounts(request, use, &spec);
    row_divisors =
        ApplyRowDivisors(request, use, layout.value.num_sequences, &spec);
    violations.Append(stated.violations);
    violations.Append(row_divisors.violations);
    if (!method.value.row_divisors.empty()) {
      row_divisors.value = std::move(method.value.row_divisors);
    }
    CheckComputesLoss(request, spec, &violations);
  }
  if (!is_wanted()) return {};
  Result<Groups> groups;
  if (layout.ok()) groups = ReadGroups(request, layout.value, method);
  violations.Append(groups.violations);
  Result<Outputs> outputs =
      ReadOutputs(request, source, layout, tensors.value, method);
  violations.Append(outputs.violations);
  spec.non_finite =
      FieldReader("", &violations)
          .Optional(kNonFinitePolicies, request.non_finite_policy(),
                    "non_finite_policy");
  spec.metrics = !request.omit_metrics() || method.value.report_judges ||
                 stated.value.kept_tokens.has_value();
  if (request.omit_metrics() && versions.value.came) {
    warnings.emplace_back(
        "versions of tokens were sent, but an answer without metrics has no "
        "staleness");
  }
  if (method.ok()) {
    const uint32_t inputs =
        ReadInputs(method.value, tensors.value, &violations);
    for (std::string& warning : WarnOfUnread(inputs, tensors.value)) {
      warnings.push_back(std::move(warning));
    }
    violations.Append(CheckPadding(spec.loss, layout.value));
    if (!request.omit_metrics()) {
      for (std::string& warning :
           WarnOfTokenMetrics(method.value, request.partial_sums(),
                              IsOnDevice(tensors.value))) {
        warnings.push_back(std::move(warning));
      }
    }
  }
  // Drift is published by step.
  outputs.value.partial_sums =
      request.partial_sums() ||
      (request.labels().has_step() && !request.omit_metrics());
  if (!violations.empty()) return {{}, std::move(violations)};
  const PartialIdentity partial =
      IdentityOf(request, facts, method.value,
                 reads.width ? layout.value.padded_length : 0);
  const bool is_of_any_shape =
      IsOfAnyShape(request, method.value, versions.value, reads);
  return {{.layout = std::move(layout.value),
           .tensors = std::move(tensors.value),
           .method = std::move(method.value),
           .groups = std::move(groups.value),
           .versions = std::move(versions.value),
           .outputs = std::move(outputs.value),
           .stated = stated.value,
           .row_divisors = std::move(row_divisors.value),
           .warnings = std::move(warnings),
           .omits_metrics = request.omit_metrics(),
           .is_of_any_shape = is_of_any_shape,
           .returns_sums = request.partial_sums(),
           .partial = partial},
          {}};
}

bool Decoded::HasTokenMetrics() const {
  return method.token_metrics && !omits_metrics && !returns_sums &&
         !IsOnDevice(tensors);
}

bool Decoded::DerivesTensors() const {
  return ReadsDerived(method) || kernels::ReadsTurnMeans(method.spec) ||
         (!method.derived.empty() && HasTokenMetrics());
}

bool Decoded::HasFirstPass() const {
  return method.row_filter.has_value() || DerivesTensors();
}

kernels::Batch BatchOf(const Decoded& decoded) {
  const Layout& layout = decoded.layout;
  const Groups& groups = decoded.groups;
  kernels::Batch batch;
  batch.num_sequences = layout.num_sequences;
  batch.offsets = layout.offsets.data();
  std::copy(std::begin(decoded.tensors.views), std::end(decoded.tensors.views),
            std::begin(batch.tensors));
  batch.response_mask = decoded.tensors.response_mask;
  batch.groups = groups.of_rows.empty() ? nullptr : groups.of_rows.data();
  batch.num_groups = groups.count;
  batch.row_divisors =
      decoded.row_divisors.empty() ? nullptr : decoded.row_divisors.data();
  return batch;
}

kernels::PolicyVersions VersionsOf(const Decoded& decoded) {
  const Versions& versions = decoded.versions;
  return {.trained = versions.trained,
          .of_positions = decoded.tensors.policy_versions,
          .spans = versions.spans.data(),
          .num_spans = static_cast<int64_t>(versions.spans.size()),
          .came = versions.came};
}

PlacedInputs PlaceInputs(std::byte* memory, const Decoded& decoded) {
  PlacedInputs placed{{}, BatchOf(decoded), VersionsOf(decoded)};
  for (const InputTensor& input : decoded.tensors.inputs) {
    const bool is_mask = input.role == v1::TENSOR_ROLE_RESPONSE_MASK;
    placed.tensors.push_back(
        {memory, input.bytes, input.element_size, is_mask});
    if (is_mask) {
      placed.batch.response_mask = reinterpret_cast<const uint8_t*>(memory);
    } else if (input.role == v1::TENSOR_ROLE_POLICY_VERSIONS) {
      placed.versions.of_positions = memory;
    } else if (const auto slot = FromWire(kInputRoles, input.role)) {
      placed.batch.tensors[static_cast<int>(*slot)].data = memory;
    }
    memory += Aligned(input.bytes);
  }
  return placed;
}

AnswerNumbers NumbersOf(const Method& method, const kernels::BatchSums& sums) {
  AnswerNumbers numbers{.tokens = sums.tokens,
                        .non_finite_tokens = sums.non_finite_tokens,
                        .positive_log_probs = sums.positive_log_probs};
  if (method.spec.loss.surrogate != kernels::Surrogate::kNone) {
    const bool is_nan = method.empty_loss_is_nan && !(sums.loss.count > 0.0);
    numbers.loss =
        is_nan ? std::numeric_limits<double>::quiet_NaN() : sums.loss.total;
  }
  for (int r = 0; r < method.spec.num_rules; ++r) {
    numbers.rules[static_cast<size_t>(r)] = {sums.rules[r].dropped_tokens,
                                             sums.rules[r].dropped_sequences};
  }
  return numbers;
}

void ReportSums(const Method& method, const kernels::BatchSums& sums,
                MetricMap* metrics, Violations* violations) {
  if (method.report) {
    method.report(sums, metrics, violations);
  } else {
    *metrics = kernels::Metrics(method.spec, method.rule_names, sums);
  }
}

Violations Report(const Decoded& decoded, const kernels::CorrectResult& result,
                  MetricMap* metrics) {
  Violations violations;
  ReportSums(decoded.method, result.sums, metrics, &violations);
  metrics->insert(result.token_metrics.begin(), result.token_metrics.end());
  if (violations.empty() || !decoded.returns_sums) return violations;
  metrics->clear();
  return {};
}

void EncodeNumbers(const Decoded& decoded, const AnswerNumbers& numbers,
                   const MetricMap& metrics, v1::CorrectResponse* response) {
  if (numbers.loss) response->set_loss(*numbers.loss);
  if (!decoded.omits_metrics) {
    response->mutable_metrics()->insert(metrics.begin(), metrics.end());
    for (size_t r = 0; r < decoded.method.rule_names.size(); ++r) {
      v1::RuleSummary* rule = response->add_rules();
      rule->set_name(decoded.method.rule_names[r]);
      rule->set_dropped_tokens(numbers.rules[r].dropped_tokens);
      rule->set_dropped_sequences(numbers.rules[r].dropped_sequences);
    }
  }
  response->set_non_finite_tokens(numbers.non_finite_tokens);
  response->set_numerics_version(kernels::kNumericsVersion);
  response->mutable_warnings()->Add(decoded.warnings.begin(),
                                    decoded.warnings.end());
  for (std::string& warning : WarnOfNumbers(decoded, numbers)) {
    response->add_warnings(std::move(warning));
  }
}

Violations Encode(const Decoded& decoded, const kernels::CorrectResult& result,
                  v1::CorrectResponse* response) {
  const kernels::BatchSums& sums = result.sums;
  const Method& method = decoded.method;
  Violations violations = CheckStated(decoded.stated, sums);
  MetricMap metrics;
  if (!violations.empty()) return violations;
  violations = Report(decoded, result, &metrics);
  if (!violations.empty()) return violations;
  EncodeNumbers(decoded, NumbersOf(method, sums), metrics, response);
  if (!decoded.omits_metrics) EncodeStaleness(sums.staleness, response);
  if (decoded.returns_sums) {
    kernels::PartialSums partial = result.partial;
    Identify(decoded.partial, &partial);
    EncodePartial(partial, response->mutable_sums());
  }
  return violations;
}

}  // namespace counterweight::server
