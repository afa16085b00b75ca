#include "server/listen/acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/listen/connection_table.h"
#include "spdlog/sinks/null_sink.h"
#include "spdlog/sinks/ostream_sink.h"
#include "tests/server/descriptors.h"
#include "tests/server/temporary_folder.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

RequestLog* NullLog() {
  static auto* const log = new RequestLog(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::null_sink_mt>()));
  return log;
}

ListenAddress Tcp(const std::string& host) {
  return {.host = host, .port = 0, .path = ""};
}

// A client of 127.0.0.`host`, not connected yet.
FileDescriptor UnconnectedClient(uint32_t host = 1) {
  sockaddr_in from{};
  from.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&from), sizeof(from)),
            0);
  return fd;
}

void ConnectTo(const std::string& address, const FileDescriptor& client) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
            0);
}

// A client of 127.0.0.`host`.
FileDescriptor Connect(const std::string& address, uint32_t host = 1) {
  FileDescriptor client = UnconnectedClient(host);
  ConnectTo(address, client);
  return client;
}

// True if the server ends the connection; false if it does not in a minute.
bool IsEnded(const FileDescriptor& client) {
  pollfd ended{.fd = client.get(), .events = POLLIN, .revents = 0};
  char byte = 0;
  return poll(&ended, 1, /*timeout=*/60'000) == 1 &&
         recv(client.get(), &byte, 1, 0) <= 0;
}

// Accepts connections like gRPC.
class Accepted {
 public:
  Acceptor::Handle Handle() {
    return [this](int listener, int fd) {
      const std::lock_guard<std::mutex> lock(mutex_);
      listener_ = listener;
      connections_.emplace_back(fd);
    };
  }
  size_t count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return connections_.size();
  }
  int listener() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return listener_;
  }

 private:
  std::mutex mutex_;
  int listener_ = -1;
  std::vector<FileDescriptor> connections_;
};

TEST(Acceptor, PassesConnectionsOnAndCountsThem) {
  std::string error;
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("127.0.0.1"), Tcp("localhost")}, .max_connections = 9},
      NullLog(), &error);
  ASSERT_NE(acceptor, nullptr) << error;
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  std::vector<FileDescriptor> clients;
  for (const std::string& address : acceptor->addresses()) {
    EXPECT_EQ(address.find(":0"), std::string::npos) << address;
    clients.push_back(Connect(address));
  }
  EXPECT_TRUE(Eventually([&] { return accepted.count() == 2; }));
  EXPECT_EQ(acceptor->connections(), 2);
  clients.pop_back();
  EXPECT_TRUE(Eventually([&] { return acceptor->connections() == 1; }));
}

// Connections may use half of the process's descriptors, two each.
TEST(Acceptor, LeavesDescriptorsForOthers) {
  constexpr rlim_t kDescriptors = 200;
  constexpr size_t kConnections = kDescriptors / 4;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = kDescriptors, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::string error;
  const auto acceptor =
      Acceptor::Bind({.listen = {Tcp("127.0.0.1")}, .max_connections = 1000},
                     NullLog(), &error);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_NE(acceptor, nullptr) << error;
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  std::vector<FileDescriptor> clients;
  for (size_t i = 0; i <= kConnections; ++i) {
    clients.push_back(Connect(acceptor->addresses().front()));
  }
  EXPECT_TRUE(Eventually([&] {
    return accepted.count() + static_cast<size_t>(acceptor->refused()) ==
           clients.size();
  }));
  EXPECT_EQ(accepted.count(), kConnections);
  acceptor->Stop();
}

// The connection waits in the queue, and so does the listener.
TEST(Acceptor, AcceptsAgainAfterALackOfDescriptors) {
  std::string error;
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("127.0.0.1")}, .max_connections = 9}, NullLog(), &error);
  ASSERT_NE(acceptor, nullptr) << error;
  Accepted accepted;
  std::atomic<bool> is_lost = false;
  acceptor->Start(accepted.Handle(), [&] { is_lost = true; });
  const FileDescriptor client = UnconnectedClient();
  {
    const NoFreeDescriptor full;
    ConnectTo(acceptor->addresses().front(), client);
    // The second failure is that of a try after the first.
    ASSERT_TRUE(
        Eventually([&] { return acceptor->refused() >= 2 || is_lost; }));
    EXPECT_EQ(accepted.count(), 0U);
  }
  EXPECT_TRUE(Eventually([&] { return accepted.count() == 1 || is_lost; }));
  EXPECT_FALSE(is_lost);
  const FileDescriptor next = Connect(acceptor->addresses().front());
  EXPECT_TRUE(Eventually([&] { return accepted.count() == 2 || is_lost; }));
  acceptor->Stop();
}

TEST(Acceptor, SaysWhichAddressCannotBeHad) {
  std::string error;
  EXPECT_EQ(Acceptor::Bind({.listen = {Tcp("192.0.2.1")}, .max_connections = 9},
                           NullLog(), &error),
            nullptr);
  EXPECT_NE(error.find("--listen=192.0.2.1:0"), std::string::npos) << error;
}

// gRPC 1.51 neither survives nor reports it.
TEST(Acceptor, ALostListenerIsTold) {
  std::string error;
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("127.0.0.1")}, .max_connections = 9}, NullLog(), &error);
  Accepted accepted;
  std::promise<void> lost;
  acceptor->Start(accepted.Handle(), [&] { lost.set_value(); });
  const FileDescriptor client = Connect(acceptor->addresses().front());
  ASSERT_TRUE(Eventually([&] { return accepted.count() == 1; }));
  // The next accept fails with EINVAL.
  shutdown(accepted.listener(), SHUT_RDWR);
  EXPECT_EQ(lost.get_future().wait_for(std::chrono::minutes(1)),
            std::future_status::ready);
}

// The name that gRPC gives the connection with the end `client`.
std::string PeerName(const FileDescriptor& client) {
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  EXPECT_EQ(getsockname(client.get(), reinterpret_cast<sockaddr*>(&own), &size),
            0);
  std::array<char, INET_ADDRSTRLEN> ip{};
  inet_ntop(AF_INET, &own.sin_addr, ip.data(), ip.size());
  return std::string("ipv4:") + ip.data() + ":" +
         std::to_string(ntohs(own.sin_port));
}

TEST(Acceptor, ClosesTheConnectionThatIsNamed) {
  std::string error;
  std::ostringstream lines;
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("127.0.0.1")}, .max_connections = 9}, &log, &error);
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  const FileDescriptor stays = Connect(acceptor->addresses().front());
  const FileDescriptor closed = Connect(acceptor->addresses().front());
  ASSERT_TRUE(Eventually([&] { return accepted.count() == 2; }));
  for (const char* none :
       {"", "unix:", "ipv4:127.0.0.1:1", "ipv6:%5B::1%5D:1"}) {
    acceptor->Close(none);
  }
  acceptor->Close(PeerName(closed));
  char byte = 0;
  EXPECT_TRUE(IsEnded(closed));
  EXPECT_EQ(recv(stays.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_TRUE(Eventually([&] { return acceptor->connections() == 1; }));
  // Its thread writes the line after it has closed the connection.
  acceptor->Stop();
  EXPECT_THAT(lines.str(), testing::HasSubstr(PeerName(closed)));
}

// gRPC calls it "ipv4:127.0.0.1:PORT", the socket ::ffff:127.0.0.1.
TEST(Acceptor, ClosesAnIpv4ConnectionOfAnIpv6Listener) {
  std::string error;
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("::")}, .max_connections = 9}, NullLog(), &error);
  if (acceptor == nullptr) GTEST_SKIP() << "no IPv6: " << error;
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  const FileDescriptor closed = Connect(acceptor->addresses().front());
  ASSERT_TRUE(Eventually([&] { return accepted.count() == 1; }));
  acceptor->Close(PeerName(closed));
  EXPECT_TRUE(Eventually([&] { return acceptor->connections() == 0; }));
}

// Versions of gRPC differ in how they write the brackets.
TEST(Acceptor, ClosesAnIpv6Connection) {
  std::string error;
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("::1")}, .max_connections = 9}, NullLog(), &error);
  if (acceptor == nullptr) GTEST_SKIP() << "no IPv6: " << error;
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  const std::string address = acceptor->addresses().front();
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_addr = in6addr_loopback;
  to.sin6_port = htons(
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  for (const std::string ip : {"%5B::1%5D", "[::1]"}) {
    const FileDescriptor closed(
        socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(
        connect(closed.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    ASSERT_TRUE(Eventually([&] { return acceptor->connections() == 1; }));
    sockaddr_in6 own{};
    socklen_t size = sizeof(own);
    ASSERT_EQ(
        getsockname(closed.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    acceptor->Close("ipv6:" + ip + ":" + std::to_string(ntohs(own.sin6_port)));
    ASSERT_TRUE(IsEnded(closed)) << ip;
    EXPECT_TRUE(Eventually([&] { return acceptor->connections() == 0; }));
  }
}

TEST(Acceptor, AnAddressThatFloodsAgainAndAgainIsRefused) {
  std::string error;
  std::ostringstream lines;
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
  const auto acceptor = Acceptor::Bind({.listen = {Tcp("127.0.0.1")},
                                        .max_connections = 9,
                                        .refuses_loopback = true},
                                       &log, &error);
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  const std::string& address = acceptor->addresses().front();
  const FileDescriptor stays = Connect(address, 2);
  for (size_t i = 1; i <= Flooders::kMost; ++i) {
    const FileDescriptor flood = Connect(address, 2);
    ASSERT_TRUE(Eventually([&] { return accepted.count() == i + 1; }));
    acceptor->Close(PeerName(flood));
    EXPECT_TRUE(IsEnded(flood));
  }
  EXPECT_TRUE(IsEnded(Connect(address, 2)));
  EXPECT_EQ(acceptor->refused(), 1);
  const FileDescriptor other = Connect(address, 3);
  EXPECT_TRUE(
      Eventually([&] { return accepted.count() == Flooders::kMost + 2; }));
  char byte = 0;
  EXPECT_EQ(recv(stays.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(recv(other.get(), &byte, 1, MSG_DONTWAIT), -1);
  acceptor->Stop();
  // The log has one line of each event, however many connections there were.
  for (const std::string event : {"connection_closed", "address_refused"}) {
    const std::string text = lines.str();
    const std::string name = "\"event\":\"" + event + "\"";
    const size_t first = text.find(name);
    EXPECT_NE(first, std::string::npos) << event;
    EXPECT_EQ(text.find(name, first + 1), std::string::npos) << event;
  }
  EXPECT_THAT(lines.str(), testing::HasSubstr("\"address\":\"127.0.0.2\""));
  EXPECT_THAT(lines.str(), testing::HasSubstr("\"seconds\":10"));
}

// Floods it from 127.0.0.2, more often than other addresses may.
void ExpectLoopbackIsNotRefused(Acceptor* acceptor) {
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  const std::string& address = acceptor->addresses().front();
  for (size_t i = 1; i <= 2 * Flooders::kMost; ++i) {
    const FileDescriptor flood = Connect(address, 2);
    ASSERT_TRUE(Eventually([&] { return accepted.count() == i; }));
    acceptor->Close(PeerName(flood));
    EXPECT_TRUE(IsEnded(flood));
  }
  EXPECT_EQ(acceptor->refused(), 0);
  acceptor->Stop();
}

TEST(Acceptor, LoopbackIsSharedByTooManyToBeRefused) {
  std::string error;
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("127.0.0.1")}, .max_connections = 9}, NullLog(), &error);
  ExpectLoopbackIsNotRefused(acceptor.get());
}

TEST(Acceptor, LoopbackIsNotRefusedByAnIpv6ListenerEither) {
  std::string error;
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("::")}, .max_connections = 9}, NullLog(), &error);
  if (acceptor == nullptr) GTEST_SKIP() << "no IPv6: " << error;
  ExpectLoopbackIsNotRefused(acceptor.get());
}

TEST(Acceptor, EndsConnectionsAfterWhatWasWritten) {
  std::string error;
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("127.0.0.1")}, .max_connections = 9}, NullLog(), &error);
  std::promise<int> accepted;
  acceptor->Start([&](int, int fd) { accepted.set_value(fd); }, [] {});
  const FileDescriptor client = Connect(acceptor->addresses().front());
  const FileDescriptor server(accepted.get_future().get());
  EXPECT_EQ(send(server.get(), "answer", 6, MSG_NOSIGNAL), 6);
  acceptor->Stop();
  acceptor->EndConnections();
  EXPECT_EQ(send(server.get(), "x", 1, MSG_NOSIGNAL), -1);
  std::array<char, 7> text{};
  EXPECT_EQ(recv(client.get(), text.data(), text.size(), MSG_WAITALL), 6);
  EXPECT_TRUE(IsEnded(client));
  // The server still reads: unread bytes would cost the answer.
  EXPECT_EQ(send(client.get(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(recv(server.get(), text.data(), 1, 0), 1);
}

TEST(Acceptor, AConnectionTooManyIsRefusedAndTheNextIsNot) {
  std::string error;
  std::ostringstream lines;
  RequestLog log(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("127.0.0.1")}, .max_connections = 1}, &log, &error);
  ASSERT_NE(acceptor, nullptr) << error;
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  const std::string& address = acceptor->addresses().front();
  {
    const FileDescriptor first = Connect(address);
    ASSERT_TRUE(Eventually([&] { return accepted.count() == 1; }));
    for (int i = 1; i <= 2; ++i) {
      ASSERT_TRUE(IsEnded(Connect(address)));
      EXPECT_EQ(acceptor->refused(), i);
    }
    EXPECT_EQ(acceptor->connections(), 1);
    char byte = 0;
    EXPECT_EQ(recv(first.get(), &byte, 1, MSG_DONTWAIT), -1);
  }
  ASSERT_TRUE(Eventually([&] { return acceptor->connections() == 0; }));
  const FileDescriptor next = Connect(address);
  EXPECT_TRUE(Eventually([&] { return accepted.count() == 2; }));
  EXPECT_EQ(acceptor->refused(), 2);
  acceptor->Stop();
  const std::string text = lines.str();
  EXPECT_THAT(text, testing::HasSubstr("there are as many connections as may"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

// More at once than one look at ended connections finds.
TEST(Acceptor, ManyConnectionsThatEndAreForgotten) {
  constexpr size_t kMany = 200;
  std::string error;
  const auto acceptor =
      Acceptor::Bind({.listen = {Tcp("127.0.0.1")}, .max_connections = kMany},
                     NullLog(), &error);
  ASSERT_NE(acceptor, nullptr) << error;
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  std::vector<FileDescriptor> clients;
  for (size_t i = 1; i <= kMany; ++i) {
    clients.push_back(Connect(acceptor->addresses().front()));
  }
  ASSERT_TRUE(Eventually([&] { return accepted.count() == kMany; }));
  clients.clear();
  EXPECT_TRUE(Eventually([&] { return acceptor->connections() == 0; }));
  EXPECT_EQ(acceptor->refused(), 0);
}

// All descriptors but those for the process's own files, two each.
TEST(Acceptor, ManyDescriptorsAreForConnections) {
  constexpr rlim_t kDescriptors = 800;
  constexpr size_t kConnections = (kDescriptors - 384) / 2;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = kDescriptors, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::string error;
  const auto acceptor =
      Acceptor::Bind({.listen = {Tcp("127.0.0.1")}, .max_connections = 10000},
                     NullLog(), &error);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_NE(acceptor, nullptr) << error;
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  std::vector<FileDescriptor> clients;
  for (size_t i = 0; i <= kConnections; ++i) {
    clients.push_back(Connect(acceptor->addresses().front()));
  }
  EXPECT_TRUE(Eventually([&] {
    return accepted.count() + static_cast<size_t>(acceptor->refused()) ==
           clients.size();
  }));
  EXPECT_EQ(accepted.count(), kConnections);
  acceptor->Stop();
}

TEST(Acceptor, AfterItsEndNobodyConnects) {
  std::string error;
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("127.0.0.1")}, .max_connections = 9}, NullLog(), &error);
  ASSERT_NE(acceptor, nullptr) << error;
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  const std::string address = acceptor->addresses().front();
  acceptor->Stop();
  acceptor->Stop();
  const FileDescriptor late = UnconnectedClient();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  EXPECT_EQ(connect(late.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
            -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_EQ(accepted.count(), 0U);
}

// Calls over Unix sockets all have the same name of a peer.
TEST(Acceptor, NoConnectionOfAUnixSocketIsClosedByName) {
  const TemporaryFolder folder;
  const std::string path = folder.File("s");
  std::string error;
  const auto acceptor =
      Acceptor::Bind({.listen = {{.host = "", .port = 0, .path = path}},
                      .max_connections = 9,
                      .refuses_loopback = true},
                     NullLog(), &error);
  ASSERT_NE(acceptor, nullptr) << error;
  EXPECT_EQ(acceptor->addresses().front(), "unix:" + path);
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  path.copy(to.sun_path, sizeof(to.sun_path) - 1);
  std::vector<FileDescriptor> clients;
  for (size_t i = 1; i <= 3; ++i) {
    clients.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(clients.back().get(), reinterpret_cast<sockaddr*>(&to),
                      sizeof(to)),
              0);
    ASSERT_TRUE(Eventually([&] { return accepted.count() == i; }));
    for (const std::string& name : {std::string("unix:"), "unix:" + path}) {
      acceptor->Close(name);
    }
  }
  acceptor->Stop();
  EXPECT_EQ(acceptor->connections(), 3);
  EXPECT_EQ(acceptor->refused(), 0);
  char byte = 0;
  for (const FileDescriptor& client : clients) {
    EXPECT_EQ(recv(client.get(), &byte, 1, MSG_DONTWAIT), -1);
  }
}

TEST(Acceptor, StopsWhileConnectionsStay) {
  std::string error;
  const auto acceptor = Acceptor::Bind(
      {.listen = {Tcp("127.0.0.1")}, .max_connections = 9}, NullLog(), &error);
  Accepted accepted;
  acceptor->Start(accepted.Handle(), [] {});
  const FileDescriptor client = Connect(acceptor->addresses().front());
  ASSERT_TRUE(Eventually([&] { return accepted.count() == 1; }));
  acceptor->Stop();
  EXPECT_EQ(send(client.get(), "x", 1, MSG_NOSIGNAL), 1);
}

TEST(Acceptor, RemovesItsSocketsAndNoOthers) {
  const TemporaryFolder folder;
  const std::string path = folder.File("s");
  std::string error;
  const Acceptor::Options options{
      .listen = {{.host = "", .port = 0, .path = path}}, .max_connections = 9};
  auto first = Acceptor::Bind(options, NullLog(), &error);
  ASSERT_NE(first, nullptr) << error;
  std::filesystem::remove(path);
  const auto second = Acceptor::Bind(options, NullLog(), &error);
  ASSERT_NE(second, nullptr) << error;
  first.reset();
  EXPECT_TRUE(std::filesystem::exists(path)) << "it is the second one's";
  second->Stop();
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace counterweight::server
