// One JSON object a line, on stdout.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_JSON_LINE_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_JSON_LINE_H_

#include <cstdint>
#include <cstdio>
#include <string>

namespace counterweight::kernels {

// Keys and strings must need no escapes. Printed when it goes.
class JsonLine {
 public:
  explicit JsonLine(const std::string& part) { Text("part", part); }
  JsonLine(const JsonLine&) = delete;
  JsonLine& operator=(const JsonLine&) = delete;
  ~JsonLine() {
    std::printf("{%s}\n", text_.c_str());
    std::fflush(stdout);
  }

  JsonLine& Text(const std::string& key, const std::string& value) {
    return Add(key, '"' + value + '"');
  }
  JsonLine& Number(const std::string& key, double value) {
    char digits[32];
    std::snprintf(digits, sizeof(digits), "%.9g", value);
    return Add(key, digits);
  }
  JsonLine& Count(const std::string& key, int64_t value) {
    return Add(key, std::to_string(value));
  }

 private:
  JsonLine& Add(const std::string& key, const std::string& value) {
    if (!text_.empty()) text_ += ", ";
    text_ += '"' + key + "\": " + value;
    return *this;
  }

  std::string text_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_JSON_LINE_H_
