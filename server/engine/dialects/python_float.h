// Parses numbers like Python, for configuration of Python programs.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PYTHON_FLOAT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PYTHON_FLOAT_H_

#include <optional>
#include <string_view>

namespace counterweight::server {

// Returns `text` without the ASCII characters that Python's str.strip()
// removes.
std::string_view StripBlanks(std::string_view text);

// Python's float(): blanks around, a sign, digits with single '_' between them,
// an exponent, "inf", "infinity" and "nan" in any case; no hexadecimal. Numbers
// too large are infinite, as there. Digits outside ASCII are not read.
std::optional<double> ParsePythonFloat(std::string_view text);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PYTHON_FLOAT_H_
