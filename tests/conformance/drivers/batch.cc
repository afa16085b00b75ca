#include "tests/conformance/drivers/batch.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>

#include "absl/strings/escaping.h"
#include "client/cpp/method.h"
#include "tests/conformance/server/checksum.h"

namespace counterweight::conformance {
namespace {

// Larger tensors are reported by their checksum alone.
constexpr size_t kMostReportedBytes = 4096;
constexpr size_t kRolePrefix = sizeof("TENSOR_ROLE_") - 1;

v1::TensorRole Role(const std::string& name) {
  v1::TensorRole role = v1::TENSOR_ROLE_UNSPECIFIED;
  if (!v1::TensorRole_Parse("TENSOR_ROLE_" + name, &role)) {
    throw std::runtime_error("there is no role " + name);
  }
  return role;
}

std::string Hex(double value) {
  char text[17];
  std::snprintf(
      text, sizeof(text), "%016llx",
      static_cast<unsigned long long>(std::bit_cast<uint64_t>(value)));
  return text;
}

void AddInput(v1::TensorRole role, std::vector<std::byte> bytes, Batch* batch) {
  const std::vector<std::byte>& kept =
      batch->memory.emplace_back(std::move(bytes));
  const bool is_mask = role == v1::TENSOR_ROLE_RESPONSE_MASK;
  batch->request.inputs.push_back({role,
                                   is_mask ? v1::D_TYPE_U8 : v1::D_TYPE_F32,
                                   kept.data(), kept.size()});
}

std::vector<std::byte> Numbers(size_t count, double first, size_t modulus) {
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; ++i) {
    numbers[i] =
        static_cast<float>(first - static_cast<double>(i % modulus) / 8);
  }
  std::vector<std::byte> bytes(count * sizeof(float));
  if (count > 0) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

void AddVersions(const json& about, Batch* batch) {
  if (about.contains("versions")) {
    const auto versions = about["versions"].get<std::vector<int32_t>>();
    std::vector<std::byte> bytes(versions.size() * sizeof(int32_t));
    std::memcpy(bytes.data(), versions.data(), bytes.size());
    const std::vector<std::byte>& kept =
        batch->memory.emplace_back(std::move(bytes));
    batch->request.inputs.push_back({v1::TENSOR_ROLE_POLICY_VERSIONS,
                                     v1::D_TYPE_I32, kept.data(), kept.size()});
  }
  for (const json& numbers : about.value("version_spans", json::array())) {
    v1::VersionSpan* const span = batch->request.header.add_version_spans();
    span->set_sequence(numbers[0]);
    span->set_start(numbers[1]);
    span->set_end(numbers[2]);
    span->set_policy_version(numbers[3]);
  }
}

void AddInputs(const json& about, size_t positions, Batch* batch) {
  AddVersions(about, batch);
  if (about.contains("inputs")) {
    for (const auto& [name, text] : about["inputs"].items()) {
      std::string bytes;
      absl::Base64Unescape(text.get<std::string>(), &bytes);
      std::vector<std::byte> copy(bytes.size());
      std::memcpy(copy.data(), bytes.data(), bytes.size());
      AddInput(Role(name), std::move(copy), batch);
    }
    return;
  }
  std::vector<std::byte> mask(positions);
  for (size_t i = 0; i < positions; ++i) {
    mask[i] = std::byte{i % 4 == 3 ? uint8_t{0} : uint8_t{1}};
  }
  AddInput(v1::TENSOR_ROLE_RESPONSE_MASK, std::move(mask), batch);
  const json short_by = about.value("short_by", json::object());
  AddInput(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS,
           Numbers(positions - short_by.value("ROLLOUT_LOG_PROBS", size_t{0}),
                   -1, 7),
           batch);
  AddInput(
      v1::TENSOR_ROLE_OLD_LOG_PROBS,
      Numbers(positions - short_by.value("OLD_LOG_PROBS", size_t{0}), -1, 5),
      batch);
}

}  // namespace

client::Status ReadBatch(const json& call, Batch* batch) {
  const json about = call.value("batch", json{{"sequences", 1}, {"length", 4}});
  size_t positions = 0;
  if (about.contains("lengths")) {
    const auto lengths = about["lengths"].get<std::vector<int64_t>>();
    client::SetPacked(lengths, &batch->request);
    positions = static_cast<size_t>(
        std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
  } else {
    const int64_t sequences = about["sequences"];
    const int64_t length = about["length"];
    client::SetPadded(sequences, length, &batch->request);
    positions = static_cast<size_t>(sequences * length);
  }
  AddInputs(about, positions, batch);
  for (const auto& name : call.value(
           "outputs", std::vector<std::string>{"WEIGHTS", "KEEP_MASK"})) {
    batch->request.outputs.push_back({Role(name)});
  }
  v1::CorrectRequest& header = batch->request.header;
  header.set_request_id(call.value("request_id", ""));
  header.set_compute_loss(call.value("compute_loss", false));
  if (call.contains("policy_version")) {
    header.mutable_labels()->set_policy_version(call["policy_version"]);
  }
  if (call.contains("step")) {
    header.mutable_labels()->set_step(call["step"]);
  }
  header.set_partial_sums(
      call.value("partial_sums", call.value("do", "") == "step"));
  header.set_omit_loss(call.value("omit_loss", false));
  const json method = call.value("method", json{{"preset", "token_tis"}});
  if (method.contains("preset")) {
    *header.mutable_method() = client::Preset(
        method["preset"].get<std::string>(),
        method.value("parameters", std::map<std::string, double>{}));
    return {};
  }
  return client::Dialect(method["dialect"].get<std::string>(),
                         method["block"].dump(), header.mutable_method(),
                         method["release"].get<std::string>());
}

json Report(const v1::StalenessSummary& summary) {
  json buckets = json::array();
  for (const v1::StalenessBucket& bucket : summary.buckets()) {
    buckets.push_back({bucket.first(),
                       bucket.has_last() ? json(bucket.last()) : json(),
                       bucket.tokens(), Hex(bucket.kl()), Hex(bucket.k3())});
  }
  return {{"buckets", buckets},
          {"unknown_tokens", summary.unknown_tokens()},
          {"mean", Hex(summary.mean())},
          {"max", summary.max()}};
}

json Report(const v1::PartialSums& message) {
  const auto hexadecimal = [](const auto& numbers) {
    json texts = json::array();
    for (const double number : numbers) texts.push_back(Hex(number));
    return texts;
  };
  return {{"sums", hexadecimal(message.sums())},
          {"maxima", hexadecimal(message.maxima())}};
}

json Report(const v1::GlobalCounts& message) {
  json counts = json::object();
  const auto* const reflection = message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    json& count = counts[field->name()];
    if (field->cpp_type() == field->CPPTYPE_DOUBLE) {
      count = Hex(reflection->GetDouble(message, field));
    } else {
      count = reflection->GetInt64(message, field);
    }
  }
  return counts;
}

// The members that reports of a batch and of a step share.
json Numbers(const v1::CorrectResponse& message, const v1::PartialSums* sums) {
  json metrics = json::object();
  for (const auto& [name, value] : message.metrics())
    metrics[name] = Hex(value);
  json rules = json::array();
  for (const v1::RuleSummary& rule : message.rules()) {
    rules.push_back(
        {rule.name(), rule.dropped_tokens(), rule.dropped_sequences()});
  }
  return {{"ok", true},
          {"loss", message.has_loss() ? json(Hex(message.loss())) : json()},
          {"metrics", metrics},
          {"rules", rules},
          {"staleness",
           message.has_staleness() ? Report(message.staleness()) : json()},
          {"sums", sums == nullptr ? json() : Report(*sums)},
          {"non_finite_tokens", message.non_finite_tokens()},
          {"warnings", std::vector<std::string>(message.warnings().begin(),
                                                message.warnings().end())}};
}

json Report(const v1::MergeSumsResponse& totals) {
  json report = Numbers(totals.answer(), &totals.sums());
  report["counts"] = totals.has_counts() ? Report(totals.counts()) : json();
  report["counts_refusal"] = totals.counts_refusal();
  return report;
}

json Report(const client::Response& response) {
  const v1::CorrectResponse& message = response.message;
  json outputs = json::object();
  for (const client::OutputTensor& output : response.outputs) {
    const std::span<const std::byte> bytes(output.data, output.bytes);
    json& entry = outputs[v1::TensorRole_Name(output.role).substr(kRolePrefix)];
    entry = {{"bytes", output.bytes}, {"crc32", Checksum(bytes)}};
    if (output.bytes > kMostReportedBytes) continue;
    entry["base64"] = absl::Base64Escape(
        {reinterpret_cast<const char*>(output.data), output.bytes});
  }
  json report =
      Numbers(message, message.has_sums() ? &message.sums() : nullptr);
  report["request_id"] = message.request_id();
  report["numerics_version"] = message.numerics_version();
  report["outputs"] = outputs;
  report["compute_seconds"] = message.timing().compute_seconds();
  report["receive_seconds"] = message.timing().receive_seconds();
  return report;
}

json Report(const client::Status& status) {
  static const std::map<client::StatusCode, std::string> kKinds = {
      {client::StatusCode::kInvalidArgument, "invalid"},
      {client::StatusCode::kResourceExhausted, "overloaded"},
      {client::StatusCode::kUnavailable, "unavailable"},
      {client::StatusCode::kDeadlineExceeded, "deadline"},
      {client::StatusCode::kCancelled, "cancelled"},
  };
  const auto kind = kKinds.find(status.code);
  json violations = json::array();
  for (const client::FieldViolation& violation : status.violations) {
    violations.push_back({violation.field, violation.description});
  }
  json report = {{"ok", false},
                 {"code", std::string(client::ToString(status.code))},
                 {"kind", kind == kKinds.end() ? "other" : kind->second},
                 {"message", status.message},
                 {"text", status.ToString()},
                 {"violations", violations},
                 {"request_id", status.request_id},
                 {"retry_after", nullptr}};
  if (status.retry_after) {
    report["retry_after"] =
        static_cast<double>(status.retry_after->count()) / 1000;
  }
  return report;
}

}  // namespace counterweight::conformance
