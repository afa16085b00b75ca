#include "server/embedded/message.h"

#include <limits>
#include <memory>
#include <optional>

#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/type_resolver.h"
#include "google/protobuf/util/type_resolver_util.h"
#include "server/embedded/counterweight.h"
#include "server/engine/names.h"
#include "server/engine/request_scan.h"

namespace counterweight::embedded {
namespace {

constexpr char kTypes[] = "type.googleapis.com";
constexpr char kNumber[] = "$numberDouble";

// Converts JSON to bytes, so that both formats meet the same limits.
Failure ToBytes(std::string_view json, std::string_view type,
                std::string* bytes) {
  const std::unique_ptr<google::protobuf::util::TypeResolver> resolver(
      google::protobuf::util::NewTypeResolverForDescriptorPool(
          kTypes, google::protobuf::DescriptorPool::generated_pool()));
  const auto status = google::protobuf::util::JsonToBinaryString(
      resolver.get(), server::Concat(kTypes, "/", type), std::string(json),
      bytes);
  if (status.ok()) return {};
  return {CW_INVALID_ARGUMENT,
          server::Concat("the request is not the JSON form of a ", type, ": ",
                         std::string(status.message())),
          {}};
}

// The number that a Value of MongoDB's Extended JSON stands for, if it is one
// that JSON lacks.
std::optional<double> SpelledNumber(const google::protobuf::Value& value) {
  const auto& fields = value.struct_value().fields();
  const auto found = fields.find(kNumber);
  if (found == fields.end() || fields.size() > 1) return std::nullopt;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::string& name = found->second.string_value();
  if (name == "Infinity") return kInfinity;
  if (name == "-Infinity") return -kInfinity;
  if (name == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

// Replaces the spelled numbers of a Struct's value. Its depth has a limit, as
// that of any message.
void ReadNumbers(google::protobuf::Value* value) {
  if (const std::optional<double> number = SpelledNumber(*value)) {
    value->set_number_value(*number);
  } else if (value->has_list_value()) {
    for (auto& item : *value->mutable_list_value()->mutable_values()) {
      ReadNumbers(&item);
    }
  } else if (value->has_struct_value()) {
    for (auto& field : *value->mutable_struct_value()->mutable_fields()) {
      ReadNumbers(&field.second);
    }
  }
}

void ReadNumbers(v1::Method* method) {
  if (!method->has_dialect()) return;
  google::protobuf::Struct* const block =
      method->mutable_dialect()->mutable_block();
  for (auto& field : *block->mutable_fields()) ReadNumbers(&field.second);
}

Failure DoesNotParse(const google::protobuf::Message& message) {
  return {CW_INVALID_ARGUMENT,
          server::Concat("the request is not a ", message.GetTypeName(),
                         ": its bytes do not parse"),
          {}};
}

}  // namespace

Failure ReadRequest(std::string_view text, int32_t format,
                    int64_t max_sequences, v1::CorrectRequest* request) {
  std::string converted;
  if (format == CW_JSON) {
    Failure failure = ToBytes(text, request->GetTypeName(), &converted);
    if (!failure.ok()) return failure;
    text = converted;
  }
  google::protobuf::io::ArrayInputStream input(text.data(),
                                               static_cast<int>(text.size()));
  server::RequestScan scan(max_sequences, /*has_data=*/false);
  server::ScannedStream scanned(&input, &scan);
  const bool parsed = request->ParseFromZeroCopyStream(&scanned);
  if (scan.violation()) return InvalidArgument({*scan.violation()});
  if (!parsed) return DoesNotParse(*request);
  if (format == CW_JSON && request->has_method()) {
    ReadNumbers(request->mutable_method());
  }
  return {};
}

namespace {

template <class Request>
Failure ReadSmall(std::string_view text, int32_t format, Request* request) {
  std::string converted;
  if (format == CW_JSON) {
    Failure failure = ToBytes(text, request->GetTypeName(), &converted);
    if (!failure.ok()) return failure;
    text = converted;
  }
  if (!request->ParseFromArray(text.data(), static_cast<int>(text.size()))) {
    return DoesNotParse(*request);
  }
  if constexpr (requires { request->has_method(); }) {
    if (format == CW_JSON && request->has_method()) {
      ReadNumbers(request->mutable_method());
    }
  }
  return {};
}

}  // namespace

Failure ReadMerge(std::string_view text, int32_t format,
                  v1::MergeSumsRequest* request) {
  return ReadSmall(text, format, request);
}

Failure ReadDeclaration(std::string_view text, int32_t format,
                        v1::DeclareRunRequest* request) {
  return ReadSmall(text, format, request);
}

Failure ReadGroups(std::string_view text, int32_t format,
                   v1::GroupAdvantagesRequest* request) {
  return ReadSmall(text, format, request);
}

Failure Write(const google::protobuf::Message& message, int32_t format,
              std::string* text) {
  bool written = false;
  if (format == CW_JSON) {
    written = google::protobuf::util::MessageToJsonString(message, text).ok();
  } else {
    written = message.SerializeToString(text);
  }
  if (written) return {};
  return {CW_INTERNAL,
          server::Concat("a ", message.GetTypeName(), " cannot be written"),
          {}};
}

}  // namespace counterweight::embedded
