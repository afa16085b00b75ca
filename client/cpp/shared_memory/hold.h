// Device memory that stays registered between calls.
#ifndef COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_HOLD_H_
#define COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_HOLD_H_

#include <memory>

#include "client/cpp/location.h"
#include "client/cpp/shared_memory/registry.h"
#include "client/cpp/status.h"

namespace counterweight::client {

// Implements Client::Hold. The hold keeps the registry too.
Status HoldAllocation(const std::shared_ptr<Registry>& registry,
                      const void* data, DeviceHold* hold);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_HOLD_H_
