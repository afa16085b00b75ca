#include "client/cpp/warnings.h"

#include <iostream>

#include "client/cpp/transport/identity.h"

namespace counterweight::client {

void Warnings::CompareVersions(std::string_view server_version) {
  const std::string warning = VersionWarning(server_version);
  if (warning.empty()) return;
  std::call_once(version_, [&] { Warn(warning); });
}

void Warnings::TellOfCopies(const std::string& why) {
  std::call_once(copies_, [&] {
    Warn("counterweight: CUDA tensors are copied to the host: " + why);
  });
}

void Warnings::Warn(const std::string& warning) const {
  if (on_warning_ != nullptr) {
    on_warning_(warning);
  } else {
    std::cerr << warning + "\n";
  }
}

}  // namespace counterweight::client
