#include "server/engine/codec_publication.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "google/protobuf/message.h"
#include "server/engine/codec_labels.h"
#include "server/engine/codec_partial.h"
#include "server/engine/codec_publication_fields.h"
#include "server/engine/codec_publication_reader.h"

namespace counterweight::server {
namespace {

using google::protobuf::Message;
using google::protobuf::RepeatedField;

// Half of what a server takes.
constexpr size_t kMaxMethodBytes = size_t{32} << 10;

template <class Field, class Kernel, class Sums, size_t n>
void Copy(const Field (&table)[n], const Kernel& from, Sums* to) {
  for (const Field& field : table) to->*field.sum = from.*field.from;
}

template <class Kernel, class Sums, size_t n>
void Write(const CountField<Kernel, Sums> (&table)[n], const Sums& sums,
           Message* message) {
  for (const CountField<Kernel, Sums>& field : table) {
    message->GetReflection()->SetInt64(message, FieldOf(*message, field.name),
                                       sums.*field.sum);
  }
}

template <class Kernel, class Sums, size_t n>
void Write(const NumberField<Kernel, Sums> (&table)[n], const Sums& sums,
           Message* message) {
  for (const NumberField<Kernel, Sums>& field : table) {
    message->GetReflection()->SetDouble(message, FieldOf(*message, field.name),
                                        sums.*field.sum);
  }
}

template <size_t n>
void WriteHistogram(const int64_t (&histogram)[n],
                    RepeatedField<int64_t>* entries) {
  entries->Add(std::begin(histogram), std::end(histogram));
}

void WriteLoss(const PublishedBatch& batch, v1::LossSums* message) {
  const PublishedSums::Loss& loss = batch.sums.loss;
  Write(kLossNumbers, loss, message);
  Write(kLossCounts, loss, message);
  if (!batch.has_kl_penalty) return;
  Write(kKlPenaltyNumbers, loss, message->mutable_kl_penalty());
  Write(kKlPenaltyCounts, loss, message->mutable_kl_penalty());
}

void WriteStaleness(const PublishedSums::Staleness& staleness,
                    v1::StalenessSums* message) {
  Write(kStalenessNumbers, staleness, message);
  Write(kStalenessCounts, staleness, message);
  WriteHistogram(staleness.histogram, message->mutable_histogram());
  for (const kernels::StalenessBucketSums& bucket : staleness.buckets) {
    v1::StalenessBucketSums* const added = message->add_buckets();
    Write(kBucketNumbers, bucket, added);
    Write(kBucketCounts, bucket, added);
  }
}

void WriteSums(const PublishedBatch& batch, v1::BatchSums* message) {
  const PublishedSums& sums = batch.sums;
  Write(kBatchCounts, sums, message);
  v1::DriftSums* const drift = message->mutable_drift();
  Write(kDriftNumbers, sums.drift, drift);
  WriteHistogram(sums.drift.histogram, drift->mutable_token_histogram());
  WriteHistogram(sums.drift.sequence_histogram,
                 drift->mutable_sequence_histogram());
  if (batch.has_weight) {
    Write(kWeightNumbers, sums.weight, message->mutable_weight());
    Write(kWeightCounts, sums.weight, message->mutable_weight());
    if (batch.has_kept_weight) {
      Write(kKeptWeightNumbers, sums.weight, message->mutable_weight());
    }
    if (sums.tokens > 0) {
      message->mutable_weight()->set_max(sums.weight.range.max);
    }
  }
  if (batch.has_loss) WriteLoss(batch, message->mutable_loss());
  for (size_t r = 0; r < batch.rule_names.size(); ++r) {
    v1::RuleSums* const rule = message->add_rules();
    rule->set_name(batch.rule_names[r]);
    Write(kRuleCounts, sums.rules[r], rule);
  }
  if (sums.staleness.measured != 0) {
    WriteStaleness(sums.staleness, message->mutable_staleness());
  }
}

void CopyStaleness(const kernels::StalenessSums& from,
                   PublishedSums::Staleness* to) {
  if (from.measured == 0) return;
  to->measured = 1;
  Copy(kStalenessNumbers, from, to);
  Copy(kStalenessCounts, from, to);
  std::copy(std::begin(from.histogram), std::end(from.histogram),
            to->histogram);
  for (size_t b = 0; b < std::size(from.buckets); ++b) {
    Copy(kBucketNumbers, from.buckets[b], &to->buckets[b]);
    Copy(kBucketCounts, from.buckets[b], &to->buckets[b]);
  }
}

std::optional<int64_t> VersionOf(const v1::Labels& labels) {
  return labels.has_policy_version() ? std::optional(labels.policy_version())
                                     : std::nullopt;
}

StepPart PartOf(int64_t step, const Method& method,
                const kernels::PartialSums& sums) {
  return {.step = step,
          .sums = sums,
          .publish = [spec = method.spec, rule_names = method.rule_names](
                         const kernels::PartialSums& all) {
            return Published(spec, rule_names, kernels::SumsOf(spec, all));
          }};
}

std::string BytesOf(const PublishedBatch& batch) {
  v1::BatchSums sums;
  WriteSums(batch, &sums);
  return sums.SerializeAsString();
}

// The method of sums that are published.
Result<Method> ReadMeasured(const v1::Method& method,
                            const kernels::PartialSums& sums,
                            const std::string& field) {
  Result<Method> read = ReadMethodOf(method, sums, field);
  if (read.ok() && !read.value.spec.metrics) {
    read.violations.push_back(
        {field, "has no drift to publish: its requests had omit_metrics"});
  }
  return read;
}

// The sums of a part have been checked; those before rounding are right if they
// are made of them.
void ReadPart(const v1::PublishRequest& request, Result<Publication>* result) {
  const bool has_step = request.labels().has_step();
  const bool has_part = request.has_partial_sums() && request.has_method();
  if (!has_step && !request.has_partial_sums() && !request.has_method()) return;
  if (!has_step || !has_part) {
    result->violations.push_back(
        {has_step ? "partial_sums" : "labels.step",
         "is required beside the others: a part of a step has labels.step, "
         "partial_sums and method"});
    return;
  }
  const Result<kernels::PartialSums> sums =
      ReadPartial(request.partial_sums(), "partial_sums");
  result->violations.Append(sums.violations);
  if (!sums.ok()) return;
  const Result<Method> method =
      ReadMeasured(request.method(), sums.value, "partial_sums");
  result->violations.Append(method.violations);
  if (!method.ok()) return;
  StepPart part = PartOf(request.labels().step(), method.value, sums.value);
  PublishedBatch made = part.publish(sums.value);
  made.has_kept_weight =
      made.has_kept_weight && result->value.batch.has_kept_weight;
  if (BytesOf(made) != BytesOf(result->value.batch)) {
    result->violations.push_back(
        {"partial_sums", "are not those of which `sums` are made"});
    return;
  }
  const std::optional<double> facts =
      AgreedOn(sums.value, kernels::Agreed::kFacts);
  if (facts) result->value.facts = static_cast<uint64_t>(*facts);
  result->value.part = std::move(part);
}

void ReadMethodOfBatch(const v1::PublishRequest& request,
                       Result<Publication>* result) {
  if (!request.has_method_of_batch()) return;
  const v1::MethodOfBatch& of = request.method_of_batch();
  const auto refuse = [&](const char* field, const char* reason) {
    result->violations.push_back({field, reason});
  };
  if (request.has_method()) {
    refuse("method_of_batch", "is that of a batch without `method`");
  }
  if (!of.has_method()) refuse("method_of_batch.method", "is required");
  if (!AreFacts(of.facts())) {
    refuse("method_of_batch.facts", "has bits that are no facts");
  }
  result->value.facts = of.facts();
}

}  // namespace

PublishedBatch Published(const kernels::CorrectionSpec& spec,
                         const std::vector<std::string>& rule_names,
                         const kernels::BatchSums& sums) {
  PublishedBatch batch;
  batch.has_weight = spec.weight.level != kernels::Level::kNone;
  batch.has_kept_weight = batch.has_weight;
  batch.has_loss = spec.loss.surrogate != kernels::Surrogate::kNone;
  batch.has_kl_penalty =
      batch.has_loss && spec.loss.kl.estimator != kernels::KlEstimator::kNone;
  batch.rule_names = rule_names;
  PublishedSums& to = batch.sums;
  Copy(kBatchCounts, sums, &to);
  Copy(kDriftNumbers, sums.drift, &to.drift);
  std::copy(std::begin(sums.drift.histogram), std::end(sums.drift.histogram),
            to.drift.histogram);
  std::copy(std::begin(sums.drift.sequence_histogram),
            std::end(sums.drift.sequence_histogram),
            to.drift.sequence_histogram);
  if (batch.has_weight) {
    Copy(kWeightNumbers, sums.weight, &to.weight);
    Copy(kKeptWeightNumbers, sums.weight, &to.weight);
    Copy(kWeightCounts, sums.weight, &to.weight);
    if (sums.tokens > 0) to.weight.range.max = sums.weight.range.max;
  }
  if (batch.has_loss) {
    Copy(kLossNumbers, sums.loss, &to.loss);
    Copy(kLossCounts, sums.loss, &to.loss);
  }
  if (batch.has_kl_penalty) {
    Copy(kKlPenaltyNumbers, sums.loss, &to.loss);
    Copy(kKlPenaltyCounts, sums.loss, &to.loss);
  }
  for (size_t r = 0; r < rule_names.size(); ++r) {
    Copy(kRuleCounts, sums.rules[r], &to.rules[r]);
  }
  CopyStaleness(sums.staleness, &to.staleness);
  return batch;
}

std::optional<StepPart> PartOf(const v1::CorrectRequest& request,
                               const Decoded& decoded,
                               const kernels::PartialSums& partial) {
  if (!request.labels().has_step() || partial.maxima.empty()) {
    return std::nullopt;
  }
  StepPart part = PartOf(request.labels().step(), decoded.method, partial);
  Identify(decoded.partial, &part.sums);
  return part;
}

Result<Publication> PublicationOf(const v1::MergeSumsRequest& request,
                                  const v1::PartialSums& sums) {
  const v1::Labels& labels = request.labels();
  Result<Publication> result{{.request_id = request.request_id(),
                              .run = labels.run(),
                              .replica = labels.replica(),
                              .policy_version = VersionOf(labels)},
                             {}};
  CheckLabels(request.request_id(), labels, &result.violations);
  const auto require = [&](bool has, const char* field) {
    if (has) return;
    result.violations.push_back(
        {field, "is required to publish a step, with the labels"});
  };
  require(!request.request_id().empty(), "request_id");
  require(request.has_method(), "method");
  require(labels.has_step(), "labels.step");
  if (!result.ok()) return result;
  const Result<kernels::PartialSums> all = ReadPartial(sums, "parts");
  const Result<Method> method =
      ReadMeasured(request.method(), all.value, "parts");
  result.violations.Append(all.violations);
  result.violations.Append(method.violations);
  if (!result.ok()) return result;
  result.value.part = PartOf(labels.step(), method.value, all.value);
  result.value.batch = result.value.part->publish(all.value);
  return result;
}

v1::PublishRequest WritePublication(const Publication& publication,
                                    const v1::Method& method) {
  v1::PublishRequest request;
  request.set_request_id(publication.request_id);
  v1::Labels& labels = *request.mutable_labels();
  labels.set_run(publication.run);
  labels.set_replica(publication.replica);
  if (publication.policy_version) {
    labels.set_policy_version(*publication.policy_version);
  }
  WriteSums(publication.batch, request.mutable_sums());
  if (publication.part) {
    labels.set_step(publication.part->step);
    EncodePartial(publication.part->sums, request.mutable_partial_sums());
    *request.mutable_method() = method;
  } else if (publication.facts && method.ByteSizeLong() <= kMaxMethodBytes) {
    *request.mutable_method_of_batch()->mutable_method() = method;
    request.mutable_method_of_batch()->set_facts(*publication.facts);
  }
  return request;
}

Result<Publication> ReadPublication(const v1::PublishRequest& request,
                                    const RequestLimits& limits) {
  Result<Publication> result;
  Publication& publication = result.value;
  const v1::Labels& labels = request.labels();
  publication.request_id = request.request_id();
  publication.run = labels.run();
  publication.replica = labels.replica();
  publication.policy_version = VersionOf(labels);
  if (request.request_id().empty()) {
    result.violations.push_back({"request_id", "is required"});
  }
  CheckLabels(request.request_id(), labels, &result.violations);
  if (request.sums().has_staleness() && !labels.has_policy_version()) {
    result.violations.push_back(
        {"labels.policy_version", "is required with sums.staleness"});
  }
  if (!request.has_sums()) {
    result.violations.push_back({"sums", "is required"});
    return result;
  }
  SumsReader(limits, &publication.batch, &result.violations)
      .Read(request.sums());
  ReadMethodOfBatch(request, &result);
  if (result.ok()) ReadPart(request, &result);
  return result;
}

}  // namespace counterweight::server
