#include "server/observe/json.h"

#include <cmath>
#include <cstddef>

#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 if there
// is none (Unicode 15, table 3-7).
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) >= 0xA0;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool too_large = first == 0xF4 && byte(1) >= 0x90;
    return continues(1) && continues(2) && continues(3) && !overlong &&
                   !too_large
               ? 4
               : 0;
  }
  return 0;
}

// The code point of a well-formed sequence.
uint32_t CodePoint(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence.front());
  // The first byte of n > 1 has n ones and a zero before its bits.
  uint32_t code =
      sequence.size() == 1 ? first : first & (0x7FU >> sequence.size());
  for (const char c : sequence.substr(1)) {
    code = code << 6U | (static_cast<unsigned char>(c) & 0x3FU);
  }
  return code;
}

// Characters that end a line for some reader, control a terminal, change the
// direction of the text around them, or cannot be seen.
bool IsEscaped(uint32_t code) {
  const auto in = [code](uint32_t low, uint32_t high) {
    return code >= low && code <= high;
  };
  return code < 0x20 || in(0x7F, 0x9F) || code == 0x061C ||
         in(0x200E, 0x200F) || in(0x2028, 0x202E) || in(0x2066, 0x2069) ||
         code == 0xFEFF;
}

}  // namespace

void AppendJsonString(std::string_view text, std::string* json) {
  json->push_back('"');
  while (!text.empty()) {
    const char c = text.front();
    const size_t length = Utf8Length(text);
    if (length == 0) {
      json->append("\\ufffd");
    } else if (c == '"' || c == '\\') {
      json->push_back('\\');
      json->push_back(c);
    } else if (const uint32_t code = CodePoint(text.substr(0, length));
               IsEscaped(code)) {
      json->append(fmt::format("\\u{:04x}", code));
    } else {
      json->append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  json->push_back('"');
}

void JsonObject::AddKey(std::string_view key) {
  if (text_.size() > 1) text_.push_back(',');
  AppendJsonString(key, &text_);
  text_.push_back(':');
}

JsonObject& JsonObject::Add(std::string_view key, std::string_view value) {
  AddKey(key);
  AppendJsonString(value, &text_);
  return *this;
}

// Without this overload a literal would convert to bool.
JsonObject& JsonObject::Add(std::string_view key, const char* value) {
  return Add(key, std::string_view(value));
}

JsonObject& JsonObject::Add(std::string_view key, int64_t value) {
  AddKey(key);
  text_.append(std::to_string(value));
  return *this;
}

JsonObject& JsonObject::Add(std::string_view key, double value) {
  AddKey(key);
  if (std::isfinite(value)) {
    text_.append(fmt::format("{:.9g}", value));
  } else {
    text_.append("null");
  }
  return *this;
}

JsonObject& JsonObject::Add(std::string_view key, bool value) {
  return AddRaw(key, value ? "true" : "false");
}

JsonObject& JsonObject::AddRaw(std::string_view key, std::string_view json) {
  AddKey(key);
  text_.append(json);
  return *this;
}

JsonObject& JsonObject::Append(const JsonObject& other) {
  const std::string_view fields = std::string_view(other.text_).substr(1);
  if (!fields.empty() && text_.size() > 1) text_.push_back(',');
  text_.append(fields);
  return *this;
}

}  // namespace counterweight::server
