#include "client/cpp/method.h"

#include "google/protobuf/util/json_util.h"

namespace counterweight::client {

v1::Method Preset(std::string_view name,
                  const std::map<std::string, double>& parameters) {
  v1::Method method;
  method.mutable_preset()->set_name(std::string(name));
  method.mutable_preset()->mutable_parameters()->insert(parameters.begin(),
                                                        parameters.end());
  return method;
}

Status Dialect(std::string_view system, std::string_view block_json,
               v1::Method* method, std::string_view release) {
  v1::Dialect* const dialect = method->mutable_dialect();
  dialect->set_system(std::string(system));
  dialect->set_release(std::string(release));
  dialect->clear_block();
  if (block_json.empty()) return {};
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      std::string(block_json), dialect->mutable_block());
  if (parsed.ok()) return {};
  // protobuf draws an arrow below the text in the second line.
  const std::string why(parsed.message());
  return InvalidArgument(
      {{"method.dialect.block",
        "is not a JSON object: " + why.substr(0, why.find('\n'))}});
}

}  // namespace counterweight::client
