// The packets of the shared-memory socket, defined by proto/README.md.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONTROL_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONTROL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "grpcpp/support/status_code_enum.h"
#include "kernels/corrector.h"
#include "server/engine/region.h"

namespace counterweight::server {

// Size of a request, and of an answer that is not a refusal.
inline constexpr size_t kControlPacketBytes = 40;
// Size of a request for device memory, the largest one.
inline constexpr size_t kDevicePacketBytes = kControlPacketBytes +
                                             sizeof(kernels::DeviceUuid) +
                                             sizeof(kernels::IpcHandle);
// Size of a request for device memory in parts.
inline constexpr size_t kPartsPacketBytes =
    kControlPacketBytes + sizeof(kernels::DeviceUuid);

using RegionHandle = std::array<uint8_t, 16>;

struct ControlRequest {
  enum class Operation : uint32_t {
    kRegister = 1,
    kRelease = 2,
    kRegisterDevice = 3,
    kRegisterParts = 4,
  };
  Operation operation = Operation::kRegister;
  // All but kRelease. `size` is the unchecked number of bytes that was sent.
  RegionAccess access = RegionAccess::kRead;
  uint64_t size = 0;
  // kRelease.
  RegionHandle handle = {};
  // kRegisterDevice and kRegisterParts, unchecked: the memory may belong to any
  // process, or not exist.
  kernels::DeviceUuid device = {};
  // kRegisterDevice.
  kernels::IpcHandle allocation = {};
};

// Reads one request. Returns the problem as a sentence: another size, an
// unknown operation or access, or reserved bytes that are not 0. Accepts any
// packet.
std::string ParseControlRequest(std::span<const uint8_t> packet,
                                ControlRequest* request);

// The reason of a refusal. The message is for the client: it contains no path,
// address or number of another client.
struct Refusal {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string message;
};

// Returns the answer to a register.
std::string SerializeAnswer(const RegionHandle& handle);

// Returns the answer to a release: whether requests still use the memory.
std::string SerializeReleased(bool in_use);

// Contains the first 200 bytes of the message. REQUIRES: the code is not OK and
// the message is ASCII.
std::string SerializeAnswer(const Refusal& refusal);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONTROL_H_
