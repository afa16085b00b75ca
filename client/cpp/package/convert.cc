#include "client/cpp/package/convert.h"

#include <utility>

#include "client/cpp/method.h"
#include "google/protobuf/util/json_util.h"

namespace counterweight {
namespace {

static_assert(static_cast<int>(Role::kAdvantages) ==
                  v1::TENSOR_ROLE_ADVANTAGES &&
              static_cast<int>(Role::kGradient) == v1::TENSOR_ROLE_GRADIENT &&
              static_cast<int>(Role::kPolicyVersions) ==
                  v1::TENSOR_ROLE_POLICY_VERSIONS &&
              static_cast<int>(DType::kI32) == v1::D_TYPE_I32 &&
              static_cast<int>(NonFinite::kNeutralize) ==
                  v1::NON_FINITE_POLICY_NEUTRALIZE);

v1::TensorRole Wire(Role role) { return static_cast<v1::TensorRole>(role); }

void ConvertLayout(const Request& from, client::Request* to) {
  if (!from.sequence_lengths) {
    client::SetPadded(from.num_sequences, from.length, to);
    return;
  }
  client::SetPacked(*from.sequence_lengths, to);
  if (from.padded_length) {
    to->header.mutable_layout()->mutable_packed()->set_padded_length(
        *from.padded_length);
  }
}

void ConvertCounts(const GlobalCounts& from, v1::CorrectRequest* to) {
  v1::GlobalCounts counts;
  if (from.num_tokens) counts.set_num_tokens(*from.num_tokens);
  if (from.num_sequences) counts.set_num_sequences(*from.num_sequences);
  if (from.num_kept_tokens) counts.set_num_kept_tokens(*from.num_kept_tokens);
  if (from.num_kept_sequences) {
    counts.set_num_kept_sequences(*from.num_kept_sequences);
  }
  if (from.num_ranks) counts.set_num_ranks(*from.num_ranks);
  if (from.weight_sum) counts.set_weight_sum(*from.weight_sum);
  if (from.weight_mean) counts.set_weight_mean(*from.weight_mean);
  counts.set_selection_scope(
      static_cast<v1::SelectionScope>(from.selection_scope));
  if (counts.ByteSizeLong() > 0)
    *to->mutable_global_counts() = std::move(counts);
}

void ConvertLabels(const Request& from, v1::CorrectRequest* to) {
  if (!from.run.empty()) to->mutable_labels()->set_run(from.run);
  if (!from.replica.empty()) to->mutable_labels()->set_replica(from.replica);
  if (from.policy_version) {
    to->mutable_labels()->set_policy_version(*from.policy_version);
  }
  if (from.step) to->mutable_labels()->set_step(*from.step);
}

void ConvertSpans(const Request& from, v1::CorrectRequest* to) {
  for (const VersionSpan& span : from.version_spans) {
    v1::VersionSpan* const added = to->add_version_spans();
    added->set_sequence(span.sequence);
    added->set_start(span.start);
    added->set_end(span.end);
    added->set_policy_version(span.policy_version);
  }
}

Staleness Converted(const v1::StalenessSummary& from) {
  Staleness to;
  for (const v1::StalenessBucket& bucket : from.buckets()) {
    StalenessBucket& added = to.buckets.emplace_back();
    added.first = bucket.first();
    if (bucket.has_last()) added.last = bucket.last();
    added.tokens = bucket.tokens();
    added.kl = bucket.kl();
    added.k3 = bucket.k3();
  }
  to.unknown_tokens = from.unknown_tokens();
  to.mean = from.mean();
  to.max = from.max();
  return to;
}

GlobalCounts Converted(const v1::GlobalCounts& from) {
  GlobalCounts to;
  if (from.has_num_tokens()) to.num_tokens = from.num_tokens();
  if (from.has_num_sequences()) to.num_sequences = from.num_sequences();
  if (from.has_num_kept_tokens()) to.num_kept_tokens = from.num_kept_tokens();
  if (from.has_num_kept_sequences()) {
    to.num_kept_sequences = from.num_kept_sequences();
  }
  if (from.has_num_ranks()) to.num_ranks = from.num_ranks();
  if (from.has_weight_sum()) to.weight_sum = from.weight_sum();
  if (from.has_weight_mean()) to.weight_mean = from.weight_mean();
  to.selection_scope = static_cast<SelectionScope>(from.selection_scope());
  return to;
}

template <typename Strings>
std::vector<std::string> Copied(const Strings& strings) {
  return {strings.begin(), strings.end()};
}

// The members that a Result and StepTotals have.
template <typename Answer>
void ConvertNumbers(const v1::CorrectResponse& from, Answer* to) {
  to->loss.reset();
  if (from.has_loss()) to->loss = from.loss();
  to->metrics = {from.metrics().begin(), from.metrics().end()};
  to->rules.clear();
  for (const v1::RuleSummary& rule : from.rules()) {
    to->rules.push_back(
        {rule.name(), rule.dropped_tokens(), rule.dropped_sequences()});
  }
  to->staleness.reset();
  if (from.has_staleness()) to->staleness = Converted(from.staleness());
  to->non_finite_tokens = from.non_finite_tokens();
  to->warnings = Copied(from.warnings());
}

}  // namespace

Method Method::Preset(std::string_view name,
                      const std::map<std::string, double>& parameters) {
  Method method;
  method.message_ = client::Preset(name, parameters).SerializeAsString();
  return method;
}

Status Method::Dialect(std::string_view system, std::string_view block_json,
                       Method* method, std::string_view release) {
  v1::Method message;
  Status status = client::Dialect(system, block_json, &message, release);
  if (status.ok()) method->message_ = message.SerializeAsString();
  return status;
}

Status Method::FromJson(std::string_view json, Method* method) {
  v1::Method message;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(std::string(json), &message);
  if (!parsed.ok()) {
    return client::InvalidArgument(
        {{"method", "is not the JSON of a counterweight.v1.Method: " +
                        std::string(parsed.message())}});
  }
  method->message_ = message.SerializeAsString();
  return {};
}

void Convert(const Request& from, client::Request* to) {
  ConvertLayout(from, to);
  v1::CorrectRequest& header = to->header;
  ConvertCounts(from.global_counts, &header);
  ConvertLabels(from, &header);
  header.set_request_id(from.request_id);
  header.set_compute_loss(from.compute_loss);
  header.set_omit_metrics(from.omit_metrics);
  header.set_partial_sums(from.partial_sums);
  header.set_omit_loss(from.omit_loss);
  header.set_non_finite_policy(
      static_cast<v1::NonFinitePolicy>(from.non_finite));
  if (from.seed) header.set_seed(*from.seed);
  header.mutable_group_ids()->Assign(from.group_ids.begin(),
                                     from.group_ids.end());
  header.mutable_row_divisors()->Assign(from.row_divisors.begin(),
                                        from.row_divisors.end());
  ConvertSpans(from, &header);
  for (const Input& input : from.inputs) {
    to->inputs.push_back({Wire(input.role), static_cast<v1::DType>(input.dtype),
                          input.data, input.bytes, input.location});
  }
  for (const Output& output : from.outputs) {
    to->outputs.push_back(
        {Wire(output.role), output.data, output.bytes, output.location});
  }
  to->cuda_stream = from.cuda_stream;
}

void Convert(const client::Response& from, Result* to) {
  const v1::CorrectResponse& message = from.message;
  to->outputs.clear();
  for (const client::OutputTensor& output : from.outputs) {
    to->outputs.push_back({static_cast<Role>(output.role),
                           static_cast<DType>(output.dtype), output.data,
                           output.bytes});
  }
  ConvertNumbers(message, to);
  to->sums.reset();
  if (message.has_sums()) Convert(message.sums(), &to->sums.emplace());
  to->request_id = message.request_id();
  to->numerics_version = message.numerics_version();
  to->backend = message.backend();
  const v1::Timing& timing = message.timing();
  to->timing = {timing.decode_seconds(), timing.queue_seconds(),
                timing.compute_seconds(), timing.encode_seconds(),
                timing.receive_seconds()};
  to->transport = from.transport;
  to->attempts = from.attempts;
}

void Convert(const PartialSums& from, v1::PartialSums* to) {
  to->mutable_sums()->Assign(from.sums.begin(), from.sums.end());
  to->mutable_maxima()->Assign(from.maxima.begin(), from.maxima.end());
}

void Convert(const v1::PartialSums& from, PartialSums* to) {
  to->sums.assign(from.sums().begin(), from.sums().end());
  to->maxima.assign(from.maxima().begin(), from.maxima().end());
}

void Convert(const v1::MergeSumsResponse& from, StepTotals* to) {
  Convert(from.sums(), &to->sums);
  ConvertNumbers(from.answer(), to);
  to->counts.reset();
  if (from.has_counts()) to->counts = Converted(from.counts());
  to->counts_refusal = from.counts_refusal();
}

void Convert(const v1::GetServerInfoResponse& from, ServerInfo* to) {
  *to = {.version = from.version(),
         .revision = from.revision(),
         .numerics_version = from.numerics_version(),
         .backend = from.backend(),
         .dialects = Copied(from.dialects()),
         .features = Copied(from.features()),
         .max_message_bytes = from.limits().max_message_bytes(),
         .max_tokens = from.limits().max_tokens(),
         .max_sequences = from.limits().max_sequences()};
}

void Convert(const v1::ListMethodsResponse& from, std::vector<MethodInfo>* to) {
  to->clear();
  for (const v1::MethodInfo& row : from.methods()) {
    MethodInfo& method = to->emplace_back();
    method = {.name = row.name(),
              .origin = row.origin(),
              .summary = row.summary(),
              .formula = row.formula(),
              .when_to_use = row.when_to_use()};
    for (const v1::ParameterInfo& parameter : row.parameters()) {
      method.parameters[parameter.name()] = parameter.default_value();
    }
  }
}

}  // namespace counterweight
