// One-line JSON objects for the log.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_JSON_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace counterweight::server {

// Appends `text` as a JSON string, quotes included. Escaped are controls (C0,
// DEL, C1), line and paragraph separators, marks that change the direction of
// text, and U+FEFF; bytes that are not UTF-8 become U+FFFD. So no request can
// split a log line, or make a terminal show another one.
void AppendJsonString(std::string_view text, std::string* json);

// Builds an object field by field, in the order of the calls.
class JsonObject {
 public:
  JsonObject& Add(std::string_view key, std::string_view value);
  JsonObject& Add(std::string_view key, const char* value);
  JsonObject& Add(std::string_view key, int64_t value);
  // NaN and infinities, which JSON lacks, become null.
  JsonObject& Add(std::string_view key, double value);
  JsonObject& Add(std::string_view key, bool value);
  // `json` is JSON already.
  JsonObject& AddRaw(std::string_view key, std::string_view json);
  // All fields of `other`.
  JsonObject& Append(const JsonObject& other);

  std::string Finish() const { return text_ + "}"; }

 private:
  void AddKey(std::string_view key);

  std::string text_ = "{";
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_JSON_H_
