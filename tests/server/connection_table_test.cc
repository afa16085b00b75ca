#include "server/listen/connection_table.h"

#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/descriptors.h"

namespace counterweight::server {
namespace {

// A pair of connected sockets; the table watches the first.
struct Pair {
  Pair() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ours = FileDescriptor(fds[0]);
    theirs = FileDescriptor(fds[1]);
  }
  // The other side sees the end.
  bool IsShutDown() const {
    char byte = 0;
    return recv(theirs.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }
  FileDescriptor ours;
  FileDescriptor theirs;
};

TEST(ConnectionTable, TheNewestOfThePeerWithMostGivesWay) {
  ConnectionTable table(3);
  std::vector<Pair> pairs(5);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(table.Add(pairs[i].ours.get(), "a", ""));
  }
  EXPECT_FALSE(table.Add(pairs[3].ours.get(), "a", "")) << "a has most";
  EXPECT_TRUE(table.Add(pairs[3].ours.get(), "b", ""));
  EXPECT_EQ(table.size(), 3);
  EXPECT_TRUE(pairs[2].IsShutDown());
  EXPECT_FALSE(pairs[1].IsShutDown());
  EXPECT_FALSE(table.Add(pairs[4].ours.get(), "b", ""))
      << "b would have as many";
}

TEST(ConnectionTable, AConnectionThatGaveWayHasNoNameAndNoPlace) {
  ConnectionTable table(2);
  std::vector<Pair> pairs(3);
  table.Add(pairs[0].ours.get(), "a", "a 1");
  table.Add(pairs[1].ours.get(), "a", "a 2");
  EXPECT_TRUE(table.Add(pairs[2].ours.get(), "b", "b 1"));
  EXPECT_EQ(table.size(), 2);
  EXPECT_EQ(table.Close("a 2"), std::nullopt);
  EXPECT_EQ(table.Close("a 1"), "a");
  EXPECT_EQ(table.Close("b 1"), "b");
  EXPECT_EQ(table.size(), 0);
}

TEST(ConnectionTable, APeerWithTwoFewerTakesAPlace) {
  ConnectionTable table(4);
  std::vector<Pair> pairs(7);
  for (size_t i = 0; i < 3; ++i) table.Add(pairs[i].ours.get(), "a", "");
  ASSERT_TRUE(table.Add(pairs[3].ours.get(), "b", ""));
  // 3 and 1, then 2 and 2: from there each keeps what it has.
  EXPECT_TRUE(table.Add(pairs[4].ours.get(), "b", ""));
  EXPECT_TRUE(pairs[2].IsShutDown());
  EXPECT_FALSE(table.Add(pairs[5].ours.get(), "b", ""));
  EXPECT_FALSE(table.Add(pairs[5].ours.get(), "a", ""));
  // A third peer takes one of theirs all the same.
  EXPECT_TRUE(table.Add(pairs[5].ours.get(), "c", ""));
  EXPECT_EQ(table.size(), 4);
  EXPECT_FALSE(table.Add(pairs[6].ours.get(), "c", ""));
  EXPECT_EQ(table.size(), 4);
}

TEST(ConnectionTable, APlaceIsFreeOnceAConnectionHasEnded) {
  ConnectionTable table(1);
  std::vector<Pair> pairs(3);
  ASSERT_TRUE(table.Add(pairs[0].ours.get(), "a", "a 1"));
  EXPECT_FALSE(table.Add(pairs[1].ours.get(), "a", "a 2"));
  shutdown(pairs[0].theirs.get(), SHUT_RDWR);
  table.Clean();
  EXPECT_TRUE(table.Add(pairs[1].ours.get(), "a", "a 2"));
  EXPECT_EQ(table.Close("a 1"), std::nullopt);
  EXPECT_EQ(table.Close("a 2"), "a");
  EXPECT_TRUE(table.Add(pairs[2].ours.get(), "b", "a 2"));
  EXPECT_EQ(table.Close("a 2"), "b");
}

TEST(ConnectionTable, EndWritingReachesEachConnection) {
  ConnectionTable table(9);
  std::vector<Pair> pairs(3);
  for (const Pair& pair : pairs) table.Add(pair.ours.get(), "a", "");
  table.EndWriting();
  for (const Pair& pair : pairs) {
    EXPECT_TRUE(pair.IsShutDown());
    EXPECT_EQ(send(pair.theirs.get(), "x", 1, MSG_NOSIGNAL), 1);
  }
}

TEST(ConnectionTable, ANameIsItsNewestConnections) {
  ConnectionTable table(9);
  std::vector<Pair> pairs(2);
  for (const Pair& pair : pairs) table.Add(pair.ours.get(), "a", "a 1");
  EXPECT_EQ(table.Close("a 2"), std::nullopt);
  EXPECT_EQ(table.Close("a 1"), "a");
  EXPECT_TRUE(pairs[1].IsShutDown());
  EXPECT_FALSE(pairs[0].IsShutDown());
  EXPECT_EQ(table.Close("a 1"), std::nullopt);
}

TEST(ConnectionTable, AnEarlierConnectionOfANameTakesNoneAway) {
  ConnectionTable table(9);
  std::vector<Pair> pairs(2);
  for (const Pair& pair : pairs) table.Add(pair.ours.get(), "a", "a 1");
  shutdown(pairs[0].ours.get(), SHUT_RDWR);
  table.Clean();
  EXPECT_EQ(table.Close("a 1"), "a");
  EXPECT_TRUE(pairs[1].IsShutDown());
}

TEST(ConnectionTable, ClosesItsDuplicates) {
  ConnectionTable table(9);
  Pair pair;
  const int64_t before = OpenDescriptors();
  table.Add(pair.ours.get(), "a", "");
  EXPECT_EQ(OpenDescriptors(), before + 1);
  shutdown(pair.ours.get(), SHUT_RDWR);
  table.Clean();
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(ConnectionTable, ForgetsWhatEndsOnEitherSide) {
  ConnectionTable table(9);
  std::vector<Pair> pairs(3);
  for (const Pair& pair : pairs) table.Add(pair.ours.get(), "a", "");
  table.Clean();
  EXPECT_EQ(table.size(), 3);
  { const FileDescriptor closed = std::move(pairs[0].theirs); }
  // gRPC shuts a connection down before it closes its descriptor.
  shutdown(pairs[1].ours.get(), SHUT_RDWR);
  table.Clean();
  EXPECT_EQ(table.size(), 1);
}

}  // namespace
}  // namespace counterweight::server
