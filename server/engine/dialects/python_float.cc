#include "server/engine/dialects/python_float.h"

#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

namespace counterweight::server {
namespace {

// The characters that str.strip() removes: C's isspace and the four separators
// of ASCII.
bool IsBlank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= '\x1f');
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// `lower` is in lower case.
bool EqualsIgnoringCase(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) {
                      return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b;
                    });
}

// Reads digit (_? digit)* from the front of *text into *digits.
bool ConsumeDigits(std::string_view* text, std::string* digits) {
  size_t i = 0;
  bool after_digit = false;
  for (; i < text->size(); ++i) {
    const char c = (*text)[i];
    if (IsDigit(c)) {
      digits->push_back(c);
      after_digit = true;
    } else if (c == '_' && after_digit) {
      after_digit = false;
    } else {
      break;
    }
  }
  text->remove_prefix(i);
  return after_digit;
}

bool ConsumeOneOf(std::string_view characters, std::string_view* text,
                  std::string* consumed) {
  if (text->empty() ||
      characters.find(text->front()) == std::string_view::npos) {
    return false;
  }
  consumed->push_back(text->front());
  text->remove_prefix(1);
  return true;
}

bool StartsWithDigit(std::string_view text) {
  return !text.empty() && IsDigit(text.front());
}

// The pattern of Python's float literal, its '_' dropped; false if `text` is
// none.
bool ToPlainNumber(std::string_view text, std::string* plain) {
  ConsumeOneOf("+-", &text, plain);
  bool has_digits = false;
  if (StartsWithDigit(text)) {
    if (!ConsumeDigits(&text, plain)) return false;
    has_digits = true;
  }
  if (ConsumeOneOf(".", &text, plain) && StartsWithDigit(text)) {
    if (!ConsumeDigits(&text, plain)) return false;
    has_digits = true;
  }
  if (!has_digits) return false;
  if (ConsumeOneOf("eE", &text, plain)) {
    ConsumeOneOf("+-", &text, plain);
    if (!ConsumeDigits(&text, plain)) return false;
  }
  return text.empty();
}

// Returns the nearest double of a text that ToPlainNumber accepted, infinity or
// 0 beyond the range. strtod would follow the program's locale.
double ToDouble(const std::string& plain) {
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  return strtod_l(plain.c_str(), nullptr, c_locale);
}

}  // namespace

std::string_view StripBlanks(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<double> ParsePythonFloat(std::string_view text) {
  text = StripBlanks(text);
  std::string plain;
  if (ToPlainNumber(text, &plain)) return ToDouble(plain);
  const bool negative = !text.empty() && text.front() == '-';
  if (!text.empty() && (negative || text.front() == '+')) text.remove_prefix(1);
  if (EqualsIgnoringCase(text, "nan")) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (EqualsIgnoringCase(text, "inf") || EqualsIgnoringCase(text, "infinity")) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return negative ? -infinity : infinity;
  }
  return std::nullopt;
}

}  // namespace counterweight::server
