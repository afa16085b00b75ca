// Registrations of device memory, against a socket that answers as the test
// defines; proto/README.md has the packets.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/shared_memory/registry.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::client {
namespace {

struct Packet {
  char magic[4];
  uint32_t kind;
  uint32_t access;
  uint32_t reserved;
  uint64_t number;
  char handle[16];
};

// Answers one connection: registers everything, and reports `uses` times that a
// released region is in use.
class MemorySocket {
 public:
  explicit MemorySocket(int uses) : uses_(uses) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path().data(), path().size());
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
    EXPECT_EQ(listen(listener_, 1), 0);
    thread_ = std::jthread([this] { Serve(); });
  }
  ~MemorySocket() {
    shutdown(listener_, SHUT_RDWR);
    // The client's end may live longer.
    shutdown(connection_, SHUT_RDWR);
    thread_.join();
    close(connection_);
    close(listener_);
  }
  MemorySocket(const MemorySocket&) = delete;
  MemorySocket& operator=(const MemorySocket&) = delete;

  const std::string& path() const { return path_; }
  int registered() const { return registered_; }
  int released() const { return released_; }
  // Ends the connection at the next release.
  void BreakAtRelease() { breaks_ = true; }

 private:
  void Serve() {
    const int connection = accept(listener_, nullptr, nullptr);
    connection_ = connection;
    char bytes[256];
    while (connection >= 0) {
      const ssize_t size = recv(connection, bytes, sizeof(bytes), 0);
      if (size < static_cast<ssize_t>(sizeof(Packet))) break;
      Packet packet;
      std::memcpy(&packet, bytes, sizeof(packet));
      Packet answer{};
      std::memcpy(answer.magic, packet.magic, sizeof(answer.magic));
      if (packet.kind == 3) {
        EXPECT_EQ(size, 120);
        std::memset(answer.handle, 'a' + registered_++, sizeof(answer.handle));
      } else {
        EXPECT_EQ(packet.kind, 2U);
        if (breaks_) break;
        ++released_;
        answer.number = uses_-- > 0 ? 1 : 0;
      }
      send(connection, &answer, sizeof(answer), MSG_NOSIGNAL);
    }
    // The client sees the end at once; the descriptor stays this object's.
    shutdown(connection, SHUT_RDWR);
  }

  const server::TemporaryFolder folder_;
  const std::string path_ = folder_.File("memory.sock");
  int listener_ = -1;
  std::atomic<int> connection_ = -1;
  std::atomic<int> uses_;
  std::atomic<int> registered_ = 0;
  std::atomic<int> released_ = 0;
  std::atomic<bool> breaks_ = false;
  std::jthread thread_;
};

class DeviceRegions : public testing::Test {
 protected:
  static DeviceRegion Region(uint64_t address) {
    return {{.address = address, .size = 100}, Access::kOutput};
  }
  static Bounds Soon() {
    return {std::chrono::steady_clock::now() + std::chrono::minutes(1), {}};
  }
  std::string Register(const MemorySocket& socket, const DeviceRegion& region) {
    std::string handle;
    const Status status =
        registry_->Register(socket.path(), region, Soon(), &handle);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return handle;
  }

  const std::shared_ptr<Registry> registry_ = std::make_shared<Registry>(0);
};

TEST_F(DeviceRegions, AreRegisteredOnceAndReleasedWithTheLastUse) {
  const MemorySocket socket(0);
  registry_->Use(Region(4096));
  registry_->Use(Region(4096));
  const std::string handle = Register(socket, Region(4096));
  EXPECT_EQ(handle, std::string(16, 'a'));
  EXPECT_EQ(Register(socket, Region(4096)), handle);
  registry_->EndUse(Region(4096));
  EXPECT_EQ(socket.released(), 0);
  registry_->EndUse(Region(4096));
  EXPECT_EQ(socket.released(), 1);
  EXPECT_EQ(socket.registered(), 1);
}

TEST_F(DeviceRegions, WaitUntilTheServerHasFinished) {
  const MemorySocket socket(5);
  registry_->Use(Region(4096));
  Register(socket, Region(4096));
  registry_->EndUse(Region(4096));
  EXPECT_EQ(socket.released(), 6);
}

TEST_F(DeviceRegions, AreWithdrawnFromACallThatIsGivenUp) {
  const MemorySocket socket(3);
  for (const uint64_t address : {4096, 8192}) {
    registry_->Use(Region(address));
    Register(socket, Region(address));
  }
  EXPECT_TRUE(registry_->Withdraw({Region(4096), Region(8192)}));
  EXPECT_EQ(socket.released(), 5);
  // They are not released again, and registered anew for another call.
  EXPECT_NE(Register(socket, Region(4096)), "");
  EXPECT_EQ(socket.registered(), 3);
  registry_->EndUse(Region(8192));
  EXPECT_EQ(socket.released(), 5);
}

TEST_F(DeviceRegions, AreNotTheCallersWhileTheServerUsesThem) {
  const MemorySocket socket(1 << 30);
  registry_->Use(Region(4096));
  Register(socket, Region(4096));
  EXPECT_FALSE(registry_->Withdraw({Region(4096)}, std::chrono::seconds(0)));
}

TEST_F(DeviceRegions, AreNotUsedAfterTheConnectionsEnd) {
  MemorySocket socket(1 << 30);
  registry_->Use(Region(4096));
  Register(socket, Region(4096));
  socket.BreakAtRelease();
  EXPECT_TRUE(registry_->Withdraw({Region(4096)}));
  registry_->EndUse(Region(4096));
}

}  // namespace
}  // namespace counterweight::client
