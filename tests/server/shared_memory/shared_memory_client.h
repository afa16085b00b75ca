// The client's end of shared memory, written from proto/README.md alone.
#ifndef COUNTERWEIGHT_TESTS_SERVER_SHARED_MEMORY_SHARED_MEMORY_CLIENT_H_
#define COUNTERWEIGHT_TESTS_SERVER_SHARED_MEMORY_SHARED_MEMORY_CLIENT_H_

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/corrector.h"
#include "server/base/file_descriptor.h"
#include "server/engine/region.h"

namespace counterweight::server {

inline constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Size of a test's region, in whole pages.
inline constexpr int64_t kRegionBytes = 8192;

// Name of MakeMemfd's files in /proc/self/maps.
inline constexpr const char* kMemfdName = "counterweight-test";

enum class Pages : uint8_t { kAll, kNone };

// Returns a memfd of `size` bytes, with zeroed or missing pages. Throws if the
// kernel refuses.
FileDescriptor MakeMemfd(int64_t size, int seals = kAllSeals,
                         Pages pages = Pages::kAll,
                         unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING);

// A client's shareable memory: zeroed, mapped, sealed.
class ClientMemory {
 public:
  explicit ClientMemory(int64_t size);
  ClientMemory(const ClientMemory&) = delete;
  ClientMemory& operator=(const ClientMemory&) = delete;
  ~ClientMemory();

  int memfd() const { return memfd_.get(); }
  uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  const int64_t size_;
  const FileDescriptor memfd_;
  uint8_t* const data_;
};

struct SharedMemoryAnswer {
  uint32_t code = 0;
  bool in_use = false;
  std::string handle;  // 16 bytes
  std::string message;
};

// Packets of requests. A handle has 16 bytes.
std::string RegisterPacket(uint64_t size, RegionAccess access);
std::string DevicePacket(uint64_t size, RegionAccess access,
                         const kernels::DeviceUuid& device,
                         const kernels::IpcHandle& allocation);
std::string PartsPacket(uint64_t size, RegionAccess access,
                        const kernels::DeviceUuid& device);
std::string ReleasePacket(std::string_view handle);

// One connection to a server's shared-memory socket.
class SharedMemoryClient {
 public:
  static FileDescriptor NewSocket();

  // Uses a connected socket.
  explicit SharedMemoryClient(FileDescriptor socket)
      : socket_(std::move(socket)) {}
  // Throws if no server listens at `path`.
  explicit SharedMemoryClient(const std::string& path,
                              FileDescriptor socket = NewSocket());

  // Send and Receive in one; throw if the server ended the connection.
  SharedMemoryAnswer Register(int memfd, uint64_t size, RegionAccess access);
  SharedMemoryAnswer Release(std::string_view handle);
  SharedMemoryAnswer Ask(std::string_view packet);

  // False if the server has ended the connection.
  bool Send(std::string_view packet, const std::vector<int>& descriptors = {});
  // None if the server has ended the connection; throws if the answer does not
  // have proto/README.md's form, or does not arrive.
  std::optional<SharedMemoryAnswer> Receive();

  // Ends the connection and waits until the server has released everything.
  void Finish();

 private:
  SharedMemoryAnswer MustReceive();

  FileDescriptor socket_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_SHARED_MEMORY_SHARED_MEMORY_CLIENT_H_
