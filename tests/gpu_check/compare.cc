#include "tests/gpu_check/compare.h"

#include <cstring>
#include <vector>

namespace counterweight::kernels {
namespace {

template <class T>
std::string Differ(const char* what, const std::vector<T>& expected,
                   const std::vector<T>& actual) {
  if (expected.size() != actual.size()) return std::string(what) + ": sizes";
  if (expected.empty() || std::memcmp(expected.data(), actual.data(),
                                      expected.size() * sizeof(T)) == 0) {
    return "";
  }
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

std::string ToString(const NonFinite& found) {
  return "tensor " + std::to_string(static_cast<int>(found.role)) + ", row " +
         std::to_string(found.sequence) + ", token " +
         std::to_string(found.token) + (found.input ? "" : ", a difference");
}

std::string DifferInRefusal(const NonFinite& expected,
                            const NonFinite& actual) {
  const std::string a = ToString(expected);
  const std::string b = ToString(actual);
  return a == b ? "" : "refused for " + a + " and for " + b;
}

}  // namespace

std::string FirstDifference(const Corrected& expected,
                            const Corrected& actual) {
  if (actual.result.status == CorrectStatus::kDeviceError ||
      actual.result.status == CorrectStatus::kDeviceLost ||
      actual.result.status == CorrectStatus::kDeviceFull) {
    return "device error: " + actual.result.device_error;
  }
  if (expected.result.status != actual.result.status) {
    return "status " +
           std::to_string(static_cast<int>(expected.result.status)) + " and " +
           std::to_string(static_cast<int>(actual.result.status));
  }
  if (expected.result.status == CorrectStatus::kNonFinite) {
    return DifferInRefusal(expected.result.non_finite,
                           actual.result.non_finite);
  }
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
