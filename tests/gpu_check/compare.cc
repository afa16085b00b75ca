#include "tests/gpu_check/compare.h"

#include <cstring>
#include <vector>

namespace counterweight::kernels {
namespace {

template <class T>
std::string Differ(const char* what, const std::vector<T>& expected,
                   const std::vector<T>& actual) {
  if (expected.size() != actual.size()) return std::string(what) + ": sizes";
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&expected[i], &actual[i], sizeof(T)) != 0) {
      return std::string(what) + "[" + std::to_string(i) +
             "]: " + std::to_string(expected[i]) + " and " +
             std::to_string(actual[i]);
    }
  }
  return "";
}

// BatchSums has only 8-byte members, so there is no padding to differ.
std::string DifferInSums(const BatchSums& expected, const BatchSums& actual) {
  static_assert(sizeof(BatchSums) % sizeof(uint64_t) == 0);
  for (size_t i = 0; i < sizeof(BatchSums); i += sizeof(uint64_t)) {
    const char* a = reinterpret_cast<const char*>(&expected) + i;
    const char* b = reinterpret_cast<const char*>(&actual) + i;
    if (std::memcmp(a, b, sizeof(uint64_t)) != 0) {
      double x = 0.0;
      double y = 0.0;
      std::memcpy(&x, a, sizeof(x));
      std::memcpy(&y, b, sizeof(y));
      return "sums, byte " + std::to_string(i) + ": " + std::to_string(x) +
             " and " + std::to_string(y);
    }
  }
  return "";
}

}  // namespace

std::string FirstDifference(const Corrected& expected,
                            const Corrected& actual) {
  if (actual.result.status == CorrectStatus::kDeviceError) {
    return "device error: " + actual.result.device_error;
  }
  if (expected.result.status != actual.result.status) return "status";
  if (expected.result.status != CorrectStatus::kOk) return "";
  std::string found = Differ("weights", expected.weights, actual.weights);
  if (found.empty()) {
    found = Differ("keep_mask", expected.keep_mask, actual.keep_mask);
  }
  if (found.empty()) {
    found =
        Differ("token_reasons", expected.token_reasons, actual.token_reasons);
  }
  if (found.empty()) {
    found = Differ("sequence_reasons", expected.sequence_reasons,
                   actual.sequence_reasons);
  }
  if (found.empty()) {
    found = Differ("gradient", expected.gradient, actual.gradient);
  }
  return found.empty() ? DifferInSums(expected.sums(), actual.sums()) : found;
}

}  // namespace counterweight::kernels
