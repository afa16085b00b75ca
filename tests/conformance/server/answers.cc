#include "tests/conformance/server/answers.h"

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/util/json_util.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace counterweight::conformance {
namespace {

// A field number that the contract does not have.
constexpr int kUnknownField = 1000;

const std::map<std::string, grpc::StatusCode> kCodes = {
    {"OK", grpc::OK},
    {"CANCELLED", grpc::CANCELLED},
    {"UNKNOWN", grpc::UNKNOWN},
    {"INVALID_ARGUMENT", grpc::INVALID_ARGUMENT},
    {"DEADLINE_EXCEEDED", grpc::DEADLINE_EXCEEDED},
    {"NOT_FOUND", grpc::NOT_FOUND},
    {"RESOURCE_EXHAUSTED", grpc::RESOURCE_EXHAUSTED},
    {"FAILED_PRECONDITION", grpc::FAILED_PRECONDITION},
    {"UNIMPLEMENTED", grpc::UNIMPLEMENTED},
    {"INTERNAL", grpc::INTERNAL},
    {"UNAVAILABLE", grpc::UNAVAILABLE},
    {"UNAUTHENTICATED", grpc::UNAUTHENTICATED},
};

v1::TensorRole Role(const std::string& name) {
  v1::TensorRole role = v1::TENSOR_ROLE_UNSPECIFIED;
  if (!v1::TensorRole_Parse("TENSOR_ROLE_" + name, &role)) {
    throw std::runtime_error("there is no role " + name);
  }
  return role;
}

template <typename T>
std::string Numbers(uint64_t bytes, double factor, uint64_t modulus) {
  std::string data(bytes, '\0');
  for (uint64_t i = 0; i < bytes / sizeof(T); ++i) {
    const T value = static_cast<T>(static_cast<double>(i % modulus) * factor);
    std::memcpy(data.data() + i * sizeof(T), &value, sizeof(T));
  }
  return data;
}

v1::Tensor Output(const v1::Layout& layout, v1::TensorRole role) {
  v1::Tensor tensor;
  tensor.set_role(role);
  const bool is_mask = role == v1::TENSOR_ROLE_KEEP_MASK;
  const bool is_real =
      role == v1::TENSOR_ROLE_WEIGHTS || role == v1::TENSOR_ROLE_GRADIENT;
  tensor.set_dtype(is_mask   ? v1::D_TYPE_U8
                   : is_real ? v1::D_TYPE_F32
                             : v1::D_TYPE_U16);
  const uint64_t bytes = TensorBytes(layout, role, tensor.dtype());
  if (is_mask) {
    tensor.set_data(Numbers<uint8_t>(bytes, 1, 2));
  } else if (is_real) {
    const double factor = role == v1::TENSOR_ROLE_WEIGHTS ? 0.125 : -0.125;
    tensor.set_data(Numbers<float>(bytes, factor, 1 << 16));
  } else {
    tensor.set_data(Numbers<uint16_t>(bytes, 1, 1 << 16));
  }
  return tensor;
}

v1::Tensor* Find(const std::string& name, v1::CorrectResponse* response) {
  for (v1::Tensor& tensor : *response->mutable_tensors()) {
    if (tensor.role() == Role(name)) return &tensor;
  }
  throw std::runtime_error("the answer has no " + name);
}

void Bend(const json& patch, const v1::CorrectRequest& request,
          v1::CorrectResponse* response) {
  Merge(patch.value("merge", json::object()), response);
  const json resize = patch.value("resize", json::object());
  for (const auto& [name, change] : resize.items()) {
    std::string* const data = Find(name, response)->mutable_data();
    data->resize(data->size() + static_cast<size_t>(change.get<int64_t>()));
  }
  const json dtypes = patch.value("dtype", json::object());
  for (const auto& [name, dtype] : dtypes.items()) {
    v1::DType parsed = v1::D_TYPE_UNSPECIFIED;
    if (!v1::DType_Parse(dtype.get<std::string>(), &parsed)) {
      throw std::invalid_argument("no dtype: " + dtype.get<std::string>());
    }
    Find(name, response)->set_dtype(parsed);
  }
  const json dropped = patch.value("drop", json::array());
  for (const auto& name : dropped) {
    const v1::TensorRole role = Role(name);
    auto* const tensors = response->mutable_tensors();
    for (int i = tensors->size() - 1; i >= 0; --i) {
      if (tensors->Get(i).role() == role) tensors->DeleteSubrange(i, 1);
    }
  }
  const json appended = patch.value("append", json::array());
  for (const auto& name : appended) {
    *response->add_tensors() = Output(request.layout(), Role(name));
  }
  if (patch.contains("unknown_fields")) AddUnknownField(response);
  if (patch.contains("unreadable")) {
    AddUnreadableField(v1::CorrectResponse::kTensorsFieldNumber, response);
  }
}

void AddDetails(const json& error, google::rpc::Status* details) {
  if (error.contains("retry_info")) {
    google::rpc::RetryInfo info;
    const double seconds = error["retry_info"].get<double>();
    double whole = 0;
    const double part = std::modf(seconds, &whole);
    info.mutable_retry_delay()->set_seconds(static_cast<int64_t>(whole));
    info.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>(std::lround(part * 1e9)));
    static_cast<void>(details->add_details()->PackFrom(info));
  }
  if (!error.contains("violations")) return;
  google::rpc::BadRequest bad_request;
  for (const auto& pair : error["violations"]) {
    auto* const violation = bad_request.add_field_violations();
    violation->set_field(pair[0].get<std::string>());
    violation->set_description(pair[1].get<std::string>());
  }
  static_cast<void>(details->add_details()->PackFrom(bad_request));
}

}  // namespace

uint64_t TensorBytes(const v1::Layout& layout, v1::TensorRole role,
                     v1::DType dtype) {
  const auto& lengths = layout.packed().sequence_lengths();
  const int64_t sequences =
      layout.has_padded() ? layout.padded().num_sequences() : lengths.size();
  const int64_t positions =
      layout.has_padded()
          ? sequences * layout.padded().length()
          : std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const bool is_per_sequence = role == v1::TENSOR_ROLE_SEQUENCE_REASONS ||
                               role == v1::TENSOR_ROLE_REWARDS;
  static const std::map<v1::DType, uint64_t> kBytes = {
      {v1::D_TYPE_F32, 4}, {v1::D_TYPE_BF16, 2}, {v1::D_TYPE_F16, 2},
      {v1::D_TYPE_U8, 1},  {v1::D_TYPE_U16, 2},  {v1::D_TYPE_I32, 4}};
  const auto found = kBytes.find(dtype);
  if (found == kBytes.end()) return 0;
  return found->second *
         static_cast<uint64_t>(is_per_sequence ? sequences : positions);
}

v1::CorrectResponse Answer(const v1::CorrectRequest& request,
                           const json& patch) {
  v1::CorrectResponse response;
  response.set_request_id(request.request_id());
  response.set_numerics_version(7);
  response.set_backend("cpu");
  (*response.mutable_metrics())["effective_sample_size"] = 0.75;
  response.mutable_timing()->set_compute_seconds(0.125);
  std::vector<v1::TensorRole> roles;
  for (const int role : request.outputs()) {
    roles.push_back(static_cast<v1::TensorRole>(role));
  }
  if (roles.empty()) {
    roles = {v1::TENSOR_ROLE_WEIGHTS, v1::TENSOR_ROLE_KEEP_MASK};
  }
  for (const v1::TensorRole role : roles) {
    *response.add_tensors() = Output(request.layout(), role);
    if (role == v1::TENSOR_ROLE_GRADIENT) response.set_loss(-1.5);
  }
  if (patch.is_object()) Bend(patch, request, &response);
  return response;
}

void Merge(const json& from, google::protobuf::Message* message) {
  if (from.empty()) return;
  google::protobuf::util::JsonParseOptions options;
  const std::unique_ptr<google::protobuf::Message> part(message->New());
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      from.dump(), part.get(), options);
  if (!parsed.ok()) throw std::runtime_error(std::string(parsed.message()));
  message->MergeFrom(*part);
}

void AddUnreadableField(int number, google::protobuf::Message* message) {
  message->GetReflection()->MutableUnknownFields(message)->AddLengthDelimited(
      number, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
}

void AddUnknownField(google::protobuf::Message* message) {
  message->GetReflection()->MutableUnknownFields(message)->AddLengthDelimited(
      kUnknownField, "of a newer contract");
}

grpc::Status Error(const json& error, grpc::ServerContext* context) {
  const grpc::StatusCode code = kCodes.at(error.at("code"));
  std::string message = error.value("message", "scripted");
  message.append(error.value("message_padding", size_t{0}), 'x');
  if (error.contains("pushback")) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", error["pushback"]);
  }
  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);
  AddDetails(error, &details);
  std::string bytes;
  if (details.details_size() > 0) bytes = details.SerializeAsString();
  if (error.contains("unreadable_details")) bytes = "\xff\xff\xff\xff";
  return {code, message, bytes};
}

}  // namespace counterweight::conformance
