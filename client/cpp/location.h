// Where a tensor lies.
#ifndef COUNTERWEIGHT_CLIENT_CPP_LOCATION_H_
#define COUNTERWEIGHT_CLIENT_CPP_LOCATION_H_

#include <memory>
#include <utility>

namespace counterweight::client {

enum class Location {
  kHost,
  // The memory of a CUDA device; all such tensors of a request are on one.
  kCuda,
};

// Result of Client::Hold: device memory that stays open at the server while a
// copy lives. Free the memory only after the last copy.
class DeviceHold {
 public:
  DeviceHold() = default;
  explicit DeviceHold(std::shared_ptr<const void> use) : use_(std::move(use)) {}

 private:
  std::shared_ptr<const void> use_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_LOCATION_H_
