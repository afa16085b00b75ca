// Clients that break the protocol, or run as another user.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/support/status_code_enum.h"
#include "gtest/gtest.h"
#include "server/shared_memory/listener.h"
#include "tests/server/shared_memory/child_processes.h"
#include "tests/server/shared_memory/running_listener.h"
#include "tests/server/shared_memory/shared_memory_client.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

using testing::HasSubstr;

// Returns the answer to a packet that ends the connection.
SharedMemoryAnswer LastAnswer(SharedMemoryClient* client,
                              std::string_view packet,
                              const std::vector<int>& descriptors) {
  client->Send(packet, descriptors);
  SharedMemoryAnswer answer = client->Receive().value();
  EXPECT_EQ(client->Receive(), std::nullopt);
  return answer;
}

int CountOf(std::string_view part, std::string_view text) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos;
       ++at) {
    ++count;
  }
  return count;
}

TEST(HostileClient, APacketThatIsNotOfTheFormEndsTheConnection) {
  RunningListener running;
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  const std::string good = RegisterPacket(kRegionBytes, RegionAccess::kRead);
  std::string garbage_operation = good;
  garbage_operation[4] = 99;
  std::string wrong_magic = good;
  wrong_magic[0] = 'X';
  const int before = CountDescriptors();
  for (const std::string& packet :
       {std::string("x"), good.substr(0, 39), good + "x",
        std::string(100000, 'C'), garbage_operation, wrong_magic}) {
    SharedMemoryClient client(running.path());
    const auto registered =
        client.Register(memfd.get(), kRegionBytes, RegionAccess::kRead);
    const auto last = LastAnswer(&client, packet, {memfd.get()});
    EXPECT_EQ(last.code, grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(running.listener().Find(registered.handle), nullptr);
    EXPECT_EQ(running.listener().regions(), 0);
  }
  EXPECT_EQ(running.listener().errors(), 6);
  EXPECT_EQ(CountDescriptors(), before);
}

TEST(HostileClient, AnEmptyPacketIsTheEnd) {
  RunningListener running;
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  const int before = CountDescriptors();
  {
    SharedMemoryClient client(running.path());
    client.Send("", {memfd.get()});
    EXPECT_EQ(client.Receive(), std::nullopt);
  }
  EXPECT_EQ(CountDescriptors(), before);
}

TEST(HostileClient, ARegisterBringsOneDescriptor) {
  RunningListener running;
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  const std::string packet = RegisterPacket(kRegionBytes, RegionAccess::kRead);
  const int before = CountDescriptors();
  for (const size_t count : {0, 2, 3, 64, 253}) {
    SharedMemoryClient client(running.path());
    const auto last =
        LastAnswer(&client, packet, std::vector<int>(count, memfd.get()));
    EXPECT_EQ(last.code, grpc::StatusCode::INVALID_ARGUMENT) << count;
    EXPECT_THAT(last.message, HasSubstr("one descriptor"));
  }
  EXPECT_EQ(CountDescriptors(), before);
  EXPECT_EQ(CountMemfdMappings(), 0);
}

TEST(HostileClient, AReleaseBringsNone) {
  RunningListener running;
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  const int before = CountDescriptors();
  {
    SharedMemoryClient client(running.path());
    const auto answer =
        client.Register(memfd.get(), kRegionBytes, RegionAccess::kRead);
    const auto last =
        LastAnswer(&client, ReleasePacket(answer.handle), {memfd.get()});
    EXPECT_THAT(last.message, HasSubstr("alone brings descriptors"));
  }
  EXPECT_EQ(CountDescriptors(), before);
}

TEST(HostileClient, WhoDoesNotReadItsAnswersIsDisconnected) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  const auto answer =
      client.Register(memfd.get(), kRegionBytes, RegionAccess::kRead);
  while (client.Send(ReleasePacket(std::string(16, 'x')))) {
  }
  running.Settle();
  EXPECT_EQ(running.listener().Find(answer.handle), nullptr);
  EXPECT_EQ(running.listener().regions(), 0);
}

TEST(HostileClient, WhoSaysNothingKeepsNobodyWaiting) {
  RunningListener running;
  const SharedMemoryClient idle(running.path());
  SharedMemoryClient client(running.path());
  EXPECT_EQ(client
                .Register(MakeMemfd(kRegionBytes).get(), kRegionBytes,
                          RegionAccess::kRead)
                .code,
            grpc::StatusCode::OK);
}

TEST(HostileClient, ConnectionsAreBounded) {
  RunningListener running;
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  std::vector<std::unique_ptr<SharedMemoryClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<SharedMemoryClient>(running.path()));
    // Without a region the connection would be closed.
    clients.back()->Register(memfd.get(), kRegionBytes, RegionAccess::kRead);
  }
  for (int i = 0; i < 3; ++i) {
    SharedMemoryClient refused(running.path());
    const auto answer = refused.Receive().value();
    EXPECT_EQ(answer.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(answer.message, HasSubstr("4 shared-memory connections"));
    EXPECT_EQ(refused.Receive(), std::nullopt);
  }
  // A closed connection makes room for the next one.
  clients.pop_back();
  SharedMemoryClient next(running.path());
  EXPECT_EQ(next.Register(memfd.get(), kRegionBytes, RegionAccess::kRead).code,
            grpc::StatusCode::OK);
}

TEST(HostileClient, AnotherUserIsRefused) {
  for (const std::optional<uid_t> other :
       {std::optional<uid_t>(geteuid() + 1), std::optional<uid_t>()}) {
    auto options = TestOptions();
    options.peer_user_id = [other](int) { return other; };
    RunningListener running(options);
    SharedMemoryClient client(running.path());
    EXPECT_EQ(client.Receive().value().code,
              grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(client.Receive(), std::nullopt);
    EXPECT_EQ(running.listener().errors(), 1);
  }
}

// The code of the answer that another user gets, 101 if the file's mode keeps
// that user out. Only root can become another user.
int ConnectAsNobody(const std::string& path, int /*argument*/) {
  if (setuid(12345) != 0) return 100;
  try {
    return static_cast<int>(SharedMemoryClient(path).Receive().value().code);
  } catch (const std::system_error& e) {
    return e.code().value() == EACCES ? 101 : 102;
  }
}

TEST(HostileClient, TheKernelKnowsWhoConnects) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  ChildProcesses clients(ConnectAsNobody);
  RunningListener running;
  // Otherwise the folder's mode would keep the other user out.
  ASSERT_EQ(chmod(running.folder().path().c_str(), 0755), 0);
  const auto connect_as_nobody = [&] {
    return WEXITSTATUS(clients.Run(running.path(), 0));
  };
  EXPECT_EQ(connect_as_nobody(), 101);
  ASSERT_EQ(chmod(running.path().c_str(), 0666), 0);
  EXPECT_EQ(connect_as_nobody(), grpc::StatusCode::PERMISSION_DENIED);
}

// While it lives, this process can open only so many more descriptors.
class NoMoreDescriptors {
 public:
  explicit NoMoreDescriptors(int but = 0) {
    getrlimit(RLIMIT_NOFILE, &before_);
    // The lowest free descriptor: all below are in use.
    const FileDescriptor free(dup(STDERR_FILENO));
    const rlimit now{static_cast<rlim_t>(free.get() + but), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &now);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(HostileClient, WithoutDescriptorsTheServerWaitsForBetterTimes) {
  RunningListener running;
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  SharedMemoryClient early(running.path());
  early.Release(std::string(16, 'x'));
  std::vector<std::unique_ptr<SharedMemoryClient>> late;
  for (int round = 0; round < 2; ++round) {
    FileDescriptor socket = SharedMemoryClient::NewSocket();
    const int64_t errors = running.listener().errors();
    // Checked when descriptors are available again: sanitizers need some.
    SharedMemoryAnswer answer;
    {
      const NoMoreDescriptors no_more;
      late.push_back(std::make_unique<SharedMemoryClient>(running.path(),
                                                          std::move(socket)));
      ASSERT_TRUE(Eventually(
          [&] { return running.listener().errors() >= errors + 3; }));
      // Existing connections are still served as far as possible.
      answer = early.Register(memfd.get(), kRegionBytes, RegionAccess::kRead);
    }
    EXPECT_EQ(answer.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(answer.message, HasSubstr("file descriptor"));
    for (SharedMemoryClient* client : {&early, late.back().get()}) {
      EXPECT_EQ(
          client->Register(memfd.get(), kRegionBytes, RegionAccess::kRead).code,
          grpc::StatusCode::OK);
    }
  }
  running.Settle();
  // One line for each period, whatever its length.
  EXPECT_EQ(CountOf("shared_memory_accept_failed", running.Log()), 2);
}

// Half of the parts would be other memory than the client means.
TEST(HostileClient, PartsThatTheServerCannotReceiveAreRefused) {
  RunningListener running;
  const FileDescriptor part = MakeMemfd(kRegionBytes);
  SharedMemoryClient client(running.path());
  client.Release(std::string(16, 'x'));
  SharedMemoryAnswer answer;
  {
    const NoMoreDescriptors no_more(/*but=*/1);
    client.Send(PartsPacket(2 * kRegionBytes, RegionAccess::kRead, {}),
                {part.get(), part.get()});
    answer = client.Receive().value();
  }
  EXPECT_EQ(answer.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(answer.message, HasSubstr("file descriptor"));
}

// One line a second over all connections, with the number of its warnings.
TEST(HostileClient, RefusalsDoNotFloodTheLog) {
  std::atomic<int64_t> milliseconds = 0;
  auto options = TestOptions();
  options.now = [&milliseconds] {
    return std::chrono::steady_clock::time_point(
        std::chrono::milliseconds(milliseconds));
  };
  RunningListener running(options);
  const auto refuse = [&running] {
    for (int connection = 0; connection < 20; ++connection) {
      SharedMemoryClient client(running.path());
      for (int i = 0; i < 10; ++i) client.Release(std::string(16, 'x'));
    }
    running.Settle();
  };
  refuse();
  milliseconds = 999;
  refuse();
  EXPECT_EQ(CountOf("\"level\":\"warning\"", running.Log()), 1);
  EXPECT_EQ(CountOf("warnings_held_back", running.Log()), 0);
  milliseconds = 1000;
  refuse();
  EXPECT_EQ(running.listener().errors(), 600);
  EXPECT_EQ(CountOf("\"level\":\"warning\"", running.Log()), 2);
  EXPECT_EQ(CountOf("\"warnings_held_back\":399}", running.Log()), 1);
  milliseconds = 2000;
  refuse();
  EXPECT_EQ(CountOf("\"warnings_held_back\":199}", running.Log()), 1);
}

TEST(HostileClient, TheLogTellsWhatIsRefusedAndNoPath) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  client.Release(std::string(16, 'x'));
  client.Finish();
  running.Settle();
  EXPECT_THAT(running.Log(), HasSubstr("shared_memory_connected"));
  EXPECT_THAT(running.Log(), HasSubstr("no region with this handle"));
  EXPECT_THAT(running.Log(), HasSubstr("shared_memory_disconnected"));
  EXPECT_EQ(running.Log().find(running.folder().path()), std::string::npos);
}

}  // namespace
}  // namespace counterweight::server
