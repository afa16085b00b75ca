// The socket that registers memory, with servers that refuse a peer.
#include "client/cpp/shared_memory/control_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "client/cpp/shared_memory/region.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::client {
namespace {

constexpr char kSentence[] = "own user's processes only";

class Refusals : public testing::Test {
 protected:
  Refusals() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    listening_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listening_, reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
    EXPECT_EQ(listen(listening_, 8), 0);
  }
  ~Refusals() override { close(listening_); }

  // Sends the reason, and closes without reading.
  void Refuse() const {
    const int peer = accept(listening_, nullptr, nullptr);
    struct {
      char magic[4] = {'C', 'W', 'M', '1'};
      uint32_t code = static_cast<uint32_t>(StatusCode::kPermissionDenied);
      char rest[32] = {};
      char sentence[sizeof(kSentence) - 1] = {};
    } packet;
    std::memcpy(packet.sentence, kSentence, sizeof(packet.sentence));
    constexpr size_t kBytes = 40 + sizeof(packet.sentence);
    EXPECT_EQ(send(peer, &packet, kBytes, MSG_NOSIGNAL),
              static_cast<ssize_t>(kBytes));
    close(peer);
  }

  static void ExpectRefused(ControlSocket* control) {
    std::shared_ptr<Region> region;
    ASSERT_TRUE(Region::Create(4096, Access::kInput, &region).ok());
    std::string handle;
    const Status status = control->Register(
        *region,
        {.deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1),
         .stop = {}},
        &handle);
    EXPECT_EQ(status.code, StatusCode::kPermissionDenied) << status.message;
    EXPECT_EQ(status.message, kSentence);
  }

  const server::TemporaryFolder folder_;
  const std::string path_ = folder_.File("memory.sock");
  int listening_ = -1;
};

TEST_F(Refusals, CountThoughNothingCanBeSent) {
  ControlSocket control;
  ASSERT_TRUE(control.Connect(path_).ok());
  Refuse();
  ExpectRefused(&control);
}

// In any order of the packet, the refusal and the end.
TEST_F(Refusals, CountThoughThePacketWasNotRead) {
  for (int i = 0; i < 100; ++i) {
    ControlSocket control;
    ASSERT_TRUE(control.Connect(path_).ok());
    std::thread server([this] { Refuse(); });
    ExpectRefused(&control);
    server.join();
  }
}

}  // namespace
}  // namespace counterweight::client
