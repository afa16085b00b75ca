#include "kernels/cuda/driver.h"

#include <fstream>

namespace counterweight::kernels {
namespace {

constexpr char kPrefix[] = "no CUDA device can be used: ";

std::string NameOf(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

// The oldest driver for a runtime, by the table "CUDA Toolkit and Minimum
// Required Driver Version" in the release notes of CUDA; 0: not in it yet.
int OldestDriver(int runtime) {
  switch (runtime / 1000) {
    case 12:
      return 525;
    case 13:
      return 580;
    default:
      return 0;
  }
}

}  // namespace

std::string_view ReleaseIn(std::string_view line) {
  constexpr std::string_view kDigits = "0123456789";
  for (size_t begin = line.find(' '); begin != std::string_view::npos;
       begin = line.find(' ', begin + 1)) {
    const std::string_view word =
        line.substr(begin + 1, line.find(' ', begin + 1) - begin - 1);
    const size_t point = word.find_first_not_of(kDigits);
    if (point == 0 || point == std::string_view::npos) continue;
    if (word[point] == '.' &&
        word.find_first_not_of("0123456789.") == std::string_view::npos) {
      return word;
    }
  }
  return {};
}

std::string DriverTooOld(std::string_view release, int runtime) {
  const int oldest = OldestDriver(runtime);
  const std::string needed =
      oldest == 0 ? "" : " (" + std::to_string(oldest) + ")";
  if (release.empty()) {
    return kPrefix + ("no NVIDIA driver is seen here; " + NameOf(runtime)) +
           " needs one" + needed;
  }
  return kPrefix + ("driver " + std::string(release)) + " is older than " +
         NameOf(runtime) + " needs" + needed;
}

std::string WhyNoDevice(cudaError_t error) {
  if (error != kDriverTooOld) {
    return std::string(kPrefix) + cudaGetErrorString(error);
  }
  std::string line;
  std::ifstream file("/proc/driver/nvidia/version");
  std::getline(file, line);
  return DriverTooOld(ReleaseIn(line), CUDART_VERSION);
}

}  // namespace counterweight::kernels
