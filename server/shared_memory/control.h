// The packets of the shared-memory socket as proto/README.md gives them, from
// bytes and to bytes.
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

// A request has this size, and so has an answer that is no refusal.
inline constexpr size_t kControlPacketBytes = 40;
// A request for device memory has more, and no request has more than that.
inline constexpr size_t kDevicePacketBytes = kControlPacketBytes +
                                             sizeof(kernels::DeviceUuid) +
                                             sizeof(kernels::IpcHandle);

using RegionHandle = std::array<uint8_t, 16>;

struct ControlRequest {
  enum class Operation : uint32_t {
    kRegister = 1,
    kRelease = 2,
    kRegisterDevice = 3,
  };
  Operation operation = Operation::kRegister;
  // kRegister, kRegisterDevice. `size` is as sent, in bytes: nobody checked it.
  RegionAccess access = RegionAccess::kRead;
  uint64_t size = 0;
  // kRelease.
  RegionHandle handle = {};
  // kRegisterDevice, as sent: the allocation may be anybody's, or none.
  kernels::DeviceUuid device = {};
  kernels::IpcHandle allocation = {};
};

// Reads one request. Returns what is wrong, as a sentence: another size, words
// that are no operation or access, or bytes that are to be 0 and are not. Total
// for every packet.
std::string ParseControlRequest(std::span<const uint8_t> packet,
                                ControlRequest* request);

// Why a client does not get what it asked for. The message is for the client:
// no path, address or number of another's.
struct Refusal {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string message;
};

// The answer to a register.
std::string SerializeAnswer(const RegionHandle& handle);

// The answer to a release: whether requests use the memory still.
std::string SerializeReleased(bool in_use);

// Of the message the first 200 bytes. REQUIRES: the code is not OK and the
// message is ASCII.
std::string SerializeAnswer(const Refusal& refusal);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONTROL_H_
