// Files with a close() that blocks as long as their other end likes.
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/support/status_code_enum.h"
#include "gtest/gtest.h"
#include "server/shared_memory/closer.h"
#include "server/shared_memory/listener.h"
#include "tests/server/shared_memory/running_listener.h"
#include "tests/server/shared_memory/shared_memory_client.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

// An ample bound for everything else here.
constexpr int kLingerSeconds = 120;
constexpr seconds kSoon{20};

// A TCP connection with data that its other end does not read: the last close()
// blocks until the data are sent, or this object is destroyed.
class Lingering {
 public:
  Lingering() {
    FileDescriptor listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int little = 4096;
    setsockopt(listening.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    near_ = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(listening.get(), any, size) != 0 ||
        listen(listening.get(), 1) != 0 ||
        getsockname(listening.get(), any, &size) != 0 ||
        connect(near_.get(), any, size) != 0) {
      throw std::runtime_error("no TCP connection");
    }
    far_ = FileDescriptor(accept(listening.get(), nullptr, nullptr));
    const std::string data(65536, 'z');
    while (send(near_.get(), data.data(), data.size(), MSG_DONTWAIT) > 0) {
    }
    const linger long_time{.l_onoff = 1, .l_linger = kLingerSeconds};
    setsockopt(near_.get(), SOL_SOCKET, SO_LINGER, &long_time,
               sizeof(long_time));
  }

  int get() const { return near_.get(); }
  // Closes our reference: returns at once if another is left.
  void LetGo() { near_ = FileDescriptor(); }
  // Ends every blocked close().
  void End() { far_ = FileDescriptor(); }

 private:
  FileDescriptor near_;
  FileDescriptor far_;
};

// Returns a socket with a close() that closes a Lingering that was sent over
// it.
FileDescriptor SocketWith(Lingering* lingering) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  SharedMemoryClient sender((FileDescriptor(ends[0])));
  sender.Send("x", {lingering->get()});
  lingering->LetGo();
  return FileDescriptor(ends[1]);
}

// Blocks the server's thread when it reads a peer's credentials.
class Gate {
 public:
  // Blocks the calling thread until Open.
  void Close() { open_ = false; }
  void Open() {
    open_ = true;
    open_.notify_all();
  }
  void Pass() {
    arrived_ = true;
    arrived_.notify_all();
    open_.wait(false);
    arrived_ = false;
  }
  void WaitForArrival() { arrived_.wait(false); }

 private:
  std::atomic<bool> open_ = true;
  std::atomic<bool> arrived_ = false;
};

class Closing : public ::testing::Test {
 protected:
  SharedMemoryListener::Options Options() {
    SharedMemoryListener::Options options = TestOptions();
    options.peer_user_id = [this](int) {
      gate_.Pass();
      return user_.load();
    };
    return options;
  }

  // Runs `action` while the server's thread is blocked.
  void WhileTheServerWaits(const std::function<void()>& action) {
    gate_.Close();
    holding_ = std::make_unique<SharedMemoryClient>(running_.path());
    gate_.WaitForArrival();
    action();
    gate_.Open();
  }

  // Another client is served, and the server does not wait for the end.
  void ExpectOthersServedAndAnEnd() {
    const FileDescriptor memfd = MakeMemfd(kRegionBytes);
    SharedMemoryClient other(running_.path());
    const auto begin = steady_clock::now();
    EXPECT_EQ(
        other.Register(memfd.get(), kRegionBytes, RegionAccess::kRead).code,
        grpc::StatusCode::OK);
    ExpectAnEnd();
    EXPECT_LT(steady_clock::now() - begin, kSoon);
  }

  void ExpectAnEnd() {
    auto stopped = std::async(std::launch::async, [this] { running_.Stop(); });
    EXPECT_EQ(stopped.wait_for(kSoon), std::future_status::ready);
    // Lets a failed test end too.
    lingering_.clear();
    stopped.wait();
  }

  Lingering* NewLingering() {
    return lingering_.emplace_back(std::make_unique<Lingering>()).get();
  }

  std::vector<std::unique_ptr<Lingering>> lingering_;
  Gate gate_;
  std::atomic<uid_t> user_ = geteuid();
  RunningListener running_{Options()};
  std::unique_ptr<SharedMemoryClient> holding_;
};

const std::string kRegister = RegisterPacket(kRegionBytes, RegionAccess::kRead);

TEST_F(Closing, OfARegistersDescriptor) {
  Lingering* const lingering = NewLingering();
  SharedMemoryClient client(running_.path());
  WhileTheServerWaits([&] {
    client.Send(kRegister, {lingering->get()});
    lingering->LetGo();
  });
  EXPECT_EQ(client.Receive().value().code, grpc::StatusCode::INVALID_ARGUMENT);
  // The connection is still usable.
  EXPECT_EQ(client.Release(std::string(16, 'x')).code,
            grpc::StatusCode::NOT_FOUND);
  ExpectOthersServedAndAnEnd();
}

TEST_F(Closing, OfADescriptorInsideADescriptor) {
  SharedMemoryClient client(running_.path());
  constexpr int kPackets = 5;
  WhileTheServerWaits([&] {
    for (int i = 0; i < kPackets; ++i) {
      const FileDescriptor outer = SocketWith(NewLingering());
      client.Send(kRegister, {outer.get()});
    }
  });
  EXPECT_EQ(client.Receive().value().code, grpc::StatusCode::INVALID_ARGUMENT);
  // A connection has one thread: the other packets wait for it, although the
  // server could read one in each round.
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  SharedMemoryClient other(running_.path());
  for (int i = 0; i < kPackets; ++i) {
    EXPECT_EQ(
        other.Register(memfd.get(), kRegionBytes, RegionAccess::kRead).code,
        grpc::StatusCode::OK);
    EXPECT_EQ(running_.listener().errors(), 1);
  }
  // They are read one after another as they can be closed.
  for (const auto& lingering : lingering_) lingering->End();
  for (int i = 1; i < kPackets; ++i) {
    EXPECT_EQ(client.Receive().value().code,
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(running_.listener().errors(), kPackets);
}

TEST_F(Closing, OfOneDescriptorTooMany) {
  Lingering* const lingering = NewLingering();
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  SharedMemoryClient client(running_.path());
  WhileTheServerWaits([&] {
    client.Send(kRegister, {memfd.get(), memfd.get(), lingering->get()});
    lingering->LetGo();
  });
  ExpectOthersServedAndAnEnd();
}

TEST_F(Closing, OfADescriptorThatIsNotReceived) {
  Lingering* const lingering = NewLingering();
  SharedMemoryClient client(running_.path());
  WhileTheServerWaits([&] {
    client.Send("no request");
    client.Send(kRegister, {lingering->get()});
    lingering->LetGo();
  });
  ExpectOthersServedAndAnEnd();
}

TEST_F(Closing, OfADescriptorThatARefusedConnectionSent) {
  Lingering* const lingering = NewLingering();
  user_ = geteuid() + 1;
  WhileTheServerWaits([&] {
    holding_->Send(kRegister, {lingering->get()});
    lingering->LetGo();
    user_ = geteuid();
  });
  ExpectOthersServedAndAnEnd();
}

TEST_F(Closing, OfADescriptorThatWaitsAtTheEnd) {
  auto options = Options();
  options.max_connections = 0;
  auto running = std::make_unique<RunningListener>(options);
  Lingering first;
  Lingering second;
  gate_.Close();
  SharedMemoryClient refused(running->path());
  gate_.WaitForArrival();
  refused.Send(kRegister, {first.get()});
  first.LetGo();
  gate_.Open();
  EXPECT_EQ(refused.Receive().value().code,
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  // No other connection is accepted while its socket is being closed.
  SharedMemoryClient waits(running->path());
  waits.Send(kRegister, {second.get()});
  second.LetGo();
  auto stopped = std::async(std::launch::async, [&] { running->Stop(); });
  EXPECT_EQ(stopped.wait_for(kSoon), std::future_status::ready);
  first.End();
  second.End();
  stopped.wait();
}

// A peer with unread packets would get a reset, not its answer.
TEST_F(Closing, ARefusedConnectionHasItsAnswerWhateverItSent) {
  auto options = Options();
  options.max_connections = 0;
  RunningListener running(options);
  gate_.Close();
  SharedMemoryClient refused(running.path());
  gate_.WaitForArrival();
  refused.Send(kRegister, {MakeMemfd(kRegionBytes).get()});
  const int after = CountDescriptors() - 1;  // without the server's end
  gate_.Open();
  ASSERT_EQ(WaitForDescriptors(after), after);
  EXPECT_EQ(refused.Receive().value().code,
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(Closing, ReadsNothingFromAClientsSocket) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor mine(ends[0]);
  const FileDescriptor sender(ends[1]);
  ASSERT_EQ(send(sender.get(), "data", 4, 0), 4);
  SharedMemoryClient client(running_.path());
  client.Release(std::string(16, 'x'));
  const int before = CountDescriptors();
  client.Send(kRegister, {mine.get()});
  EXPECT_EQ(client.Receive().value().code, grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_EQ(WaitForDescriptors(before), before);
  char data[8] = {};
  EXPECT_EQ(recv(mine.get(), data, sizeof(data), MSG_DONTWAIT), 4);
}

// While one file is being closed, its connection's end frees its regions.
TEST_F(Closing, KeepsNoRegionOfAClientThatLeft) {
  FileDescriptor outer = SocketWith(NewLingering());
  auto client = std::make_unique<SharedMemoryClient>(running_.path());
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  ASSERT_EQ(
      client->Register(memfd.get(), kRegionBytes, RegionAccess::kRead).code,
      grpc::StatusCode::OK);
  WhileTheServerWaits([&] {
    client->Send(kRegister, {outer.get()});
    outer = FileDescriptor();
  });
  EXPECT_EQ(client->Receive().value().code, grpc::StatusCode::INVALID_ARGUMENT);
  client.reset();
  running_.Settle();
  EXPECT_EQ(running_.listener().regions(), 0);
  ExpectAnEnd();
}

// 4 connections, and 5 threads that close files of ended ones.
TEST_F(Closing, HasSoManyThreadsAndNoMore) {
  SharedMemoryClient early(running_.path());
  ASSERT_EQ(early
                .Register(MakeMemfd(kRegionBytes).get(), kRegionBytes,
                          RegionAccess::kRead)
                .code,
            grpc::StatusCode::OK);
  std::vector<std::unique_ptr<SharedMemoryClient>> refused;
  user_ = geteuid() + 1;
  WhileTheServerWaits([&] {
    for (int i = 0; i < 8; ++i) {
      Lingering* const lingering = NewLingering();
      refused.push_back(std::make_unique<SharedMemoryClient>(running_.path()));
      refused.back()->Send(kRegister, {lingering->get()});
      lingering->LetGo();
    }
  });
  // `holding_` is the ninth, and its socket has nothing to wait for.
  ASSERT_TRUE(Eventually([&] { return running_.listener().errors() >= 6; }));
  // In each packet's round the server could accept one more.
  for (int i = 1; i <= 10; ++i) {
    early.Release(std::string(16, 'x'));
    EXPECT_EQ(running_.listener().errors(), 6 + i);
  }
  lingering_.clear();
  ASSERT_TRUE(
      Eventually([&] { return running_.listener().errors() >= 9 + 10; }));
}

TEST(Closer, LeavesToItsThreadWhatTakesTooLong) {
  auto lingering = std::make_unique<Lingering>();
  std::vector<FileDescriptor> descriptors;
  descriptors.push_back(SocketWith(lingering.get()));
  const auto begin = steady_clock::now();
  Closer::Done done;
  {
    Closer closer;
    done = closer.Close(std::move(descriptors));
    EXPECT_EQ(closer.count(), 1);
  }
  EXPECT_GE(steady_clock::now() - begin, Closer::kPatience);
  EXPECT_LT(steady_clock::now() - begin, kSoon);
  EXPECT_FALSE(*done);
  lingering.reset();
  ASSERT_TRUE(Eventually([&] { return done->load(); }));
}

TEST(Closer, TellsWhenItIsDone) {
  Closer closer;
  const int before = CountDescriptors();
  std::vector<FileDescriptor> descriptors;
  descriptors.push_back(MakeMemfd(kRegionBytes));
  descriptors.push_back(SharedMemoryClient::NewSocket());
  const Closer::Done done = closer.Close(std::move(descriptors));
  ASSERT_TRUE(Eventually([&] { return done->load(); }));
  EXPECT_EQ(CountDescriptors(), before);
  eventfd_t ended = 0;
  ASSERT_TRUE(Eventually([&] { return closer.count() == 0; }));
  ASSERT_TRUE(Eventually(
      [&] { return eventfd_read(closer.changed().get(), &ended) == 0; }));
  EXPECT_EQ(ended, 1U);
}

}  // namespace
}  // namespace counterweight::server
