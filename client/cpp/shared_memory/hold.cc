#include "client/cpp/shared_memory/hold.h"

#include "client/cpp/device/driver.h"

namespace counterweight::client {

Status HoldAllocation(const std::shared_ptr<Registry>& registry,
                      const void* data, DeviceHold* hold) {
  CudaDriver* driver = nullptr;
  Status status = CudaDriver::Get(&driver);
  int device = 0;
  if (status.ok()) status = driver->DeviceOf(data, &device);
  DeviceAllocation allocation;
  if (status.ok()) status = driver->Export(device, data, &allocation);
  if (!status.ok()) return status;
  registry->Use({allocation, Access::kInput});
  registry->Use({allocation, Access::kOutput});
  const auto end = [registry, allocation](const void* /*none*/) {
    registry->EndUse({allocation, Access::kInput});
    registry->EndUse({allocation, Access::kOutput});
  };
  *hold = DeviceHold(std::shared_ptr<const void>(nullptr, end));
  return {};
}

}  // namespace counterweight::client
