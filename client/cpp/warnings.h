// A client's warnings.
#ifndef COUNTERWEIGHT_CLIENT_CPP_WARNINGS_H_
#define COUNTERWEIGHT_CLIENT_CPP_WARNINGS_H_

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace counterweight::client {

// Passes on one warning of each kind. Thread-safe.
class Warnings {
 public:
  // Null: a line on stderr.
  explicit Warnings(std::function<void(std::string_view)> on_warning)
      : on_warning_(std::move(on_warning)) {}

  // A server of a version that this library may not understand in full.
  void CompareVersions(std::string_view server_version);
  // Tensors on a device that are copied to the host.
  void TellOfCopies(const std::string& why);

 private:
  void Warn(const std::string& warning) const;

  const std::function<void(std::string_view)> on_warning_;
  std::once_flag version_;
  std::once_flag copies_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_WARNINGS_H_
