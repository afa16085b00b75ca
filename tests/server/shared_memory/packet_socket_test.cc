#include "server/shared_memory/packet_socket.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "gtest/gtest.h"
#include "tests/server/shared_memory/shared_memory_client.h"

namespace counterweight::server {
namespace {

// Two ends of one connection.
std::array<FileDescriptor, 2> MakePair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()),
            0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void SendDescriptor(int socket, std::string data, int descriptor) {
  iovec part{data.data(), data.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  EXPECT_EQ(sendmsg(socket, &message, 0), static_cast<ssize_t>(data.size()));
}

TEST(PacketSocket, ReceivesPacketsOneByOne) {
  const auto [client, server] = MakePair();
  Packet packet;
  EXPECT_EQ(ReceivePacket(server.get(), &packet), Received::kNothing);
  EXPECT_TRUE(SendPacket(client.get(), "one"));
  EXPECT_TRUE(SendPacket(client.get(), "second"));
  EXPECT_EQ(ReceivePacket(server.get(), &packet), Received::kPacket);
  EXPECT_EQ(packet.size, 3U);
  EXPECT_EQ(ReceivePacket(server.get(), &packet), Received::kPacket);
  EXPECT_EQ(packet.size, 6U);
  EXPECT_EQ(packet.descriptors.size(), 0U);
}

// A program that the server starts inherits no client's memory: its pages would
// live as long as that program.
TEST(PacketSocket, DescriptorsStayInThisProcess) {
  const auto [client, server] = MakePair();
  const FileDescriptor memfd = MakeMemfd(4096);
  SendDescriptor(client.get(), "x", memfd.get());
  Packet packet;
  ASSERT_EQ(ReceivePacket(server.get(), &packet), Received::kPacket);
  ASSERT_EQ(packet.descriptors.size(), 1U);
  EXPECT_FALSE(packet.lost_descriptors);
  const int flags = fcntl(packet.descriptors[0].get(), F_GETFD);
  ASSERT_GE(flags, 0);
  EXPECT_NE(flags & FD_CLOEXEC, 0);
}

TEST(PacketSocket, APeerThatLeftIsTheEnd) {
  auto [client, server] = MakePair();
  client = FileDescriptor();
  Packet packet;
  EXPECT_EQ(ReceivePacket(server.get(), &packet), Received::kEnd);
  EXPECT_FALSE(SendPacket(server.get(), "x"));
}

}  // namespace
}  // namespace counterweight::server
