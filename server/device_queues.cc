#include "server/device_queues.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace counterweight::server {

void WidenDeviceQueues() {
  constexpr char kVariable[] = "CUDA_DEVICE_MAX_CONNECTIONS";
  if (getenv(kVariable) != nullptr) return;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string each; std::getline(file, each, '\0');) {
    arguments.push_back(each);
  }
  if (arguments.empty()) return;
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  setenv(kVariable, "32", /*replace=*/0);
  execv("/proc/self/exe", pointers.data());
}

}  // namespace counterweight::server
