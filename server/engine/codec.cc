#include "server/engine/codec.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/metrics.h"
#include "server/engine/codec_enums.h"
#include "server/engine/codec_fields.h"
#include "server/engine/codec_method.h"
#include "server/engine/codec_outputs.h"
#include "server/engine/codec_reduction.h"
#include "server/engine/codec_tensors.h"

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
  refuse(request.trajectory_ids_size() > 0, "trajectory_ids");
  refuse(request.version_spans_size() > 0, "version_spans");
}

void SetNativeReport(DecodedRequest* decoded) {
  decoded->report = [spec = decoded->spec, names = decoded->rule_names](
                        const kernels::BatchSums& sums, MetricMap* metrics,
                        Violations*) {
    *metrics = kernels::Metrics(spec, names, sums);
  };
}

bool AsksFor(const v1::CorrectRequest& request, v1::TensorRole role) {
  return std::find(request.outputs().begin(), request.outputs().end(), role) !=
         request.outputs().end();
}

bool ReadsGlobalCounts(const v1::CorrectRequest& request) {
  const v1::Method& method = request.method();
  const v1::PolicyLoss& loss = method.has_preset()
                                   ? method.preset().policy_loss()
                                   : method.config().policy_loss();
  return request.global_counts().has_weight_sum() ||
         loss.denominator() == v1::LOSS_DENOMINATOR_GLOBAL;
}

MethodFacts FactsOf(const v1::CorrectRequest& request, const TensorSet& tensors,
                    const LayoutInfo& layout) {
  MethodFacts facts;
  RequestFacts& of = facts.request;
  of.has_rollout_log_probs = tensors.has(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS);
  of.has_old_log_probs = tensors.has(v1::TENSOR_ROLE_OLD_LOG_PROBS);
  of.has_current_log_probs = tensors.has(v1::TENSOR_ROLE_CURRENT_LOG_PROBS);
  of.has_ref_log_probs = tensors.has(v1::TENSOR_ROLE_REF_LOG_PROBS);
  of.has_advantages = tensors.has(v1::TENSOR_ROLE_ADVANTAGES);
  of.has_group_ids = request.group_ids_size() > 0;
  of.wants_loss =
      request.compute_loss() || AsksFor(request, v1::TENSOR_ROLE_GRADIENT);
  of.seed = request.seed();
  of.num_sequences = layout.num_sequences;
  of.padded_length = layout.padded_length;
  if (request.has_global_counts()) {
    facts.global_counts = &request.global_counts();
  }
  return facts;
}

// True if decoded->spec is valid.
bool DecodeMethod(const v1::CorrectRequest& request, const TensorSet& tensors,
                  const LayoutInfo& layout, DecodedRequest* decoded,
                  Violations* violations) {
  Result<Method> result =
      ReadMethod(request.method(), FactsOf(request, tensors, layout));
  Method& method = result.value;
  decoded->spec = method.spec;
  decoded->groups = std::move(method.groups);
  decoded->batch.num_groups = method.num_groups;
  decoded->uses_group_ids = method.uses_group_ids;
  decoded->empty_loss_is_nan = method.empty_loss_is_nan;
  decoded->rule_names = std::move(method.rule_names);
  decoded->warnings = std::move(method.warnings);
  decoded->report = std::move(method.report);
  decoded->report_judges = method.report_judges;
  decoded->method_name = std::move(method.name);
  violations->Append(result.violations);
  return result.ok();
}

// Rows by group, in the order in which groups first appear.
void DecodeGroups(const v1::CorrectRequest& request, const LayoutInfo& layout,
                  bool has_method, DecodedRequest* decoded,
                  Violations* violations) {
  if (request.group_ids_size() == 0 && !decoded->uses_group_ids) return;
  if (request.group_ids_size() != layout.num_sequences) {
    violations->push_back({"group_ids", "must have one entry per sequence"});
  } else if (has_method && !decoded->uses_group_ids) {
    violations->push_back(
        {"group_ids", "is not read by this method; leave it out"});
  } else {
    std::map<int64_t, int32_t> index;
    for (const int64_t id : request.group_ids()) {
      const auto next = static_cast<int32_t>(index.size());
      decoded->groups.push_back(index.try_emplace(id, next).first->second);
    }
    decoded->batch.num_groups = static_cast<int64_t>(index.size());
  }
}

void EncodeRules(const DecodedRequest& decoded, const kernels::BatchSums& sums,
                 v1::CorrectResponse* response) {
  for (int r = 0; r < decoded.spec.num_rules; ++r) {
    v1::RuleSummary* rule = response->add_rules();
    rule->set_name(decoded.rule_names[static_cast<size_t>(r)]);
    rule->set_dropped_tokens(sums.rules[r].dropped_tokens);
    rule->set_dropped_sequences(sums.rules[r].dropped_sequences);
  }
}

// Peers whose losses include the padding can only be followed where it is sent.
void CheckPadding(const DecodedRequest& decoded, const LayoutInfo& layout,
                  Violations* violations) {
  const kernels::LossSpec& loss = decoded.spec.loss;
  if (!loss.counts_padding) return;
  // DecodeLayout keeps the product in range.
  if (layout.num_positions == layout.num_sequences * layout.padded_length) {
    return;
  }
  violations->push_back(
      {"layout.packed",
       "this block's answer includes the padding of a padded batch; send the "
       "batch padded"});
}

}  // namespace

Violations Decode(const v1::CorrectRequest& request,
                  const RequestLimits& limits, const PayloadSource& source,
                  DecodedRequest* decoded) {
  Violations violations;
  CheckLabels(request, &violations);
  LayoutInfo layout;
  const bool has_layout = DecodeLayout(request.layout(), limits,
                                       &decoded->offsets, &layout, &violations);
  RefuseUnused(request, &violations);
  const auto is_wanted = [&] {
    return !source.is_wanted || source.is_wanted();
  };
  if (!is_wanted()) return violations;
  TensorSet tensors;
  DecodeTensors(request, has_layout ? &layout : nullptr, source, &tensors,
                decoded, &violations);
  if (!is_wanted()) return violations;
  const bool has_method =
      DecodeMethod(request, tensors, layout, decoded, &violations);
  DecodeGlobalWeights(request, &decoded->spec, &violations);
  if (request.has_global_counts() && !ReadsGlobalCounts(request)) {
    decoded->warnings.emplace_back(
        "global_counts was sent, but this method does not read it");
  }
  if (!is_wanted()) return violations;
  if (has_layout) {
    DecodeGroups(request, layout, has_method, decoded, &violations);
  }
  DecodeOutputs(request, has_method, decoded, &violations);
  decoded->num_positions = layout.num_positions;
  decoded->batch.num_sequences = layout.num_sequences;
  DecodeDestinations(request, source, has_layout, decoded, &violations);
  decoded->spec.non_finite =
      FieldReader("", &violations)
          .Optional(kNonFinitePolicies, request.non_finite_policy(),
                    "non_finite_policy");
  decoded->omits_metrics = request.omit_metrics();
  decoded->spec.metrics = !decoded->omits_metrics || decoded->report_judges;
  if (has_method) {
    const uint32_t inputs = kernels::RequiredTensors(decoded->spec);
    RequireTensors(inputs, tensors, &violations);
    WarnOfUnread(inputs, tensors, &decoded->warnings);
    if (!decoded->report) SetNativeReport(decoded);
    CheckPadding(*decoded, layout, &violations);
  }
  if (!violations.empty()) return violations;
  const int64_t num_groups = decoded->batch.num_groups;
  decoded->batch = tensors.batch;
  decoded->batch.groups =
      decoded->groups.empty() ? nullptr : decoded->groups.data();
  decoded->batch.num_groups = num_groups;
  decoded->batch.num_sequences = layout.num_sequences;
  decoded->batch.offsets = decoded->offsets.data();
  return violations;
}

Violations Encode(const DecodedRequest& decoded, const kernels::BatchSums& sums,
                  v1::CorrectResponse* response) {
  Violations violations;
  MetricMap metrics;
  decoded.report(sums, &metrics, &violations);
  if (!violations.empty()) return violations;
  if (decoded.spec.loss.surrogate != kernels::Surrogate::kNone) {
    const bool is_nan = decoded.empty_loss_is_nan && !(sums.loss.count > 0.0);
    response->set_loss(is_nan ? std::numeric_limits<double>::quiet_NaN()
                              : sums.loss.total);
  }
  if (!decoded.omits_metrics) {
    response->mutable_metrics()->insert(metrics.begin(), metrics.end());
    EncodeRules(decoded, sums, response);
  }
  response->set_non_finite_tokens(sums.non_finite_tokens);
  response->set_numerics_version(kernels::kNumericsVersion);
  response->mutable_warnings()->Add(decoded.warnings.begin(),
                                    decoded.warnings.end());
  return violations;
}

}  // namespace counterweight::server
