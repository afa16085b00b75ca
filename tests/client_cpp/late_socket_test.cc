// A server with a control socket that takes packets and answers when the test
// lets it: a frozen process, for example.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "client/cpp/shared_memory/registry.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::steady_clock;

constexpr uint32_t kRegister = 1;
constexpr uint32_t kRelease = 2;

struct Head {
  char magic[4] = {'C', 'W', 'M', '1'};
  uint32_t kind = 0;
  char rest[16] = {};
  char handle[16] = {};
};

class LateSocket : public testing::Test {
 protected:
  LateSocket() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
    EXPECT_EQ(listen(listener_, 4), 0);
  }
  ~LateSocket() override {
    if (connection_ >= 0) close(connection_);
    close(listener_);
  }

  std::shared_ptr<Region> Allocate() {
    std::shared_ptr<Region> region;
    EXPECT_TRUE(registry_->Allocate(100, Access::kInput, &region).ok());
    return region;
  }
  Status Register(const Region& region, milliseconds timeout,
                  const std::stop_token& stop = {}) {
    return registry_->Register(path_, region,
                               {steady_clock::now() + timeout, stop}, &handle_);
  }

  // Returns the operation of the next packet, after accepting the connection.
  uint32_t NextOperation() {
    if (connection_ < 0) connection_ = accept(listener_, nullptr, nullptr);
    Head packet;
    EXPECT_EQ(recv(connection_, &packet, sizeof(packet), 0), 40);
    return packet.kind;
  }
  void Answer(char handle) const {
    Head packet;
    std::memset(packet.handle, handle, sizeof(packet.handle));
    packet.kind = 0;
    EXPECT_EQ(send(connection_, &packet, sizeof(packet), MSG_NOSIGNAL), 40);
  }
  static bool HasMore(int descriptor) {
    pollfd readable = {.fd = descriptor, .events = POLLIN, .revents = 0};
    return poll(&readable, 1, 0) > 0;
  }

  const server::TemporaryFolder folder_;
  const std::string path_ = folder_.File("memory.sock");
  int listener_ = -1;
  int connection_ = -1;
  std::string handle_;
  const std::shared_ptr<Registry> registry_ = std::make_shared<Registry>(0);
};

TEST_F(LateSocket, HoldsACallUntilItsDeadlineAndNoLaterOne) {
  const auto region = Allocate();
  EXPECT_EQ(Register(*region, milliseconds(50)).code,
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(NextOperation(), kRegister);
  // Other calls are refused at once, without a packet or a connection.
  EXPECT_EQ(Register(*Allocate(), minutes(1)).code, StatusCode::kUnavailable);
  EXPECT_EQ(Register(*region, minutes(1)).code, StatusCode::kUnavailable);
  EXPECT_FALSE(HasMore(connection_));
  EXPECT_FALSE(HasMore(listener_));
  // The late answer makes the socket good again. Its region goes back.
  Answer('a');
  std::jthread server([this] {
    EXPECT_EQ(NextOperation(), kRelease);
    EXPECT_EQ(NextOperation(), kRegister);
    Answer('-');
    Answer('b');
  });
  EXPECT_TRUE(Register(*region, minutes(1)).ok());
  EXPECT_EQ(handle_, std::string(16, 'b'));
  server.join();
  EXPECT_TRUE(Register(*region, minutes(1)).ok());
  EXPECT_FALSE(HasMore(connection_));
  EXPECT_FALSE(HasMore(listener_));
}

TEST_F(LateSocket, HoldsNothingWhileACallWaits) {
  const auto region = Allocate();
  auto freed = Allocate();
  std::stop_source stop;
  Status status;
  std::jthread waiting(
      [&] { status = Register(*region, minutes(1), stop.get_token()); });
  EXPECT_EQ(NextOperation(), kRegister);
  // Each would wait for 10 seconds, and the call end, if it took a lock that
  // the call holds.
  EXPECT_NE(Allocate(), nullptr);
  EXPECT_EQ(registry_->Find(region->data(), 1, Access::kInput), region);
  EXPECT_FALSE(registry_->Trim());
  EXPECT_EQ(registry_->generation(), 1U);
  freed.reset();
  // A call that waits for its turn keeps to its own bounds.
  EXPECT_EQ(Register(*Allocate(), milliseconds(10)).code,
            StatusCode::kDeadlineExceeded);
  std::stop_source other;
  other.request_stop();
  EXPECT_EQ(Register(*Allocate(), minutes(1), other.get_token()).code,
            StatusCode::kCancelled);
  EXPECT_FALSE(HasMore(connection_));
  stop.request_stop();
  waiting.join();
  EXPECT_EQ(status.code, StatusCode::kCancelled);
}

TEST_F(LateSocket, GivesRegionsBackWithoutWaiting) {
  auto region = Allocate();
  std::jthread server([this] {
    EXPECT_EQ(NextOperation(), kRegister);
    Answer('a');
  });
  EXPECT_TRUE(Register(*region, minutes(1)).ok());
  server.join();
  region.reset();
  EXPECT_EQ(NextOperation(), kRelease);
  EXPECT_FALSE(HasMore(listener_));
}

TEST_F(LateSocket, IsConnectedAgainAfterItsEnd) {
  const auto region = Allocate();
  EXPECT_EQ(Register(*region, milliseconds(10)).code,
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(NextOperation(), kRegister);
  close(connection_);
  connection_ = -1;
  std::jthread server([this] {
    EXPECT_EQ(NextOperation(), kRegister);
    Answer('a');
  });
  EXPECT_TRUE(Register(*region, minutes(1)).ok());
}

}  // namespace
}  // namespace counterweight::client
