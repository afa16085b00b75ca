// Answers and refusals for clients that follow the protocol.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/support/status_code_enum.h"
#include "gtest/gtest.h"
#include "server/shared_memory/listener.h"
#include "tests/server/shared_memory/running_listener.h"
#include "tests/server/shared_memory/shared_memory_client.h"

namespace counterweight::server {
namespace {

using testing::HasSubstr;

constexpr int64_t kFourthPageBytes = 3 * 4096 + 100;
constexpr int64_t kReserved = 4 * 4096;

TEST(Registration, TheServerReadsWhatTheClientWrites) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const ClientMemory memory(kFourthPageBytes);
  memory.data()[0] = 7;
  memory.data()[kFourthPageBytes - 1] = 9;
  const auto answer =
      client.Register(memory.memfd(), kFourthPageBytes, RegionAccess::kRead);
  ASSERT_EQ(answer.code, grpc::StatusCode::OK) << answer.message;
  const auto region = running.listener().Find(answer.handle);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->size(), kFourthPageBytes);
  EXPECT_EQ(region->access(), RegionAccess::kRead);
  EXPECT_EQ(region->data()[0], std::byte{7});
  EXPECT_EQ(region->data()[kFourthPageBytes - 1], std::byte{9});
  memory.data()[0] = 8;
  EXPECT_EQ(region->data()[0], std::byte{8});
}

TEST(Registration, TheClientReadsWhatTheServerWrites) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const ClientMemory memory(kFourthPageBytes);
  const auto answer =
      client.Register(memory.memfd(), kFourthPageBytes, RegionAccess::kWrite);
  const auto region = running.listener().Find(answer.handle);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->access(), RegionAccess::kWrite);
  region->data()[kFourthPageBytes - 1] = std::byte{5};
  EXPECT_EQ(memory.data()[kFourthPageBytes - 1], 5);
}

TEST(Registration, ARegionForReadingCannotBeWritten) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const FileDescriptor memfd = MakeMemfd(kFourthPageBytes);
  const auto reads =
      client.Register(memfd.get(), kFourthPageBytes, RegionAccess::kRead);
  const auto writes =
      client.Register(memfd.get(), kFourthPageBytes, RegionAccess::kWrite);
  EXPECT_EQ(PermissionsOf(running.listener().Find(reads.handle)->data()),
            "r--s");
  EXPECT_EQ(PermissionsOf(running.listener().Find(writes.handle)->data()),
            "rw-s");
}

TEST(Registration, TheServerKeepsNoDescriptor) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const FileDescriptor memfd = MakeMemfd(kFourthPageBytes);
  client.Register(memfd.get(), kFourthPageBytes, RegionAccess::kRead);
  const int before = CountDescriptors();
  for (int i = 0; i < 3; ++i) {
    client.Register(memfd.get(), kFourthPageBytes, RegionAccess::kRead);
    EXPECT_EQ(CountDescriptors(), before);
  }
}

TEST(Registration, HandlesAreFreshAndFoundByAllOfTheirBytesOnly) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const FileDescriptor memfd = MakeMemfd(kFourthPageBytes);
  std::vector<std::string> handles;
  for (int i = 0; i < 8; ++i) {
    handles.push_back(
        client.Register(memfd.get(), kFourthPageBytes, RegionAccess::kRead)
            .handle);
  }
  for (const std::string& handle : handles) {
    ASSERT_EQ(handle.size(), 16U);
    EXPECT_EQ(std::count(handles.begin(), handles.end(), handle), 1);
    EXPECT_NE(running.listener().Find(handle), nullptr);
    EXPECT_EQ(running.listener().Find(handle.substr(0, 15)), nullptr);
    EXPECT_EQ(running.listener().Find(handle + "x"), nullptr);
    std::string other = handle;
    other[15] = static_cast<char>(other[15] ^ 1);
    EXPECT_EQ(running.listener().Find(other), nullptr);
  }
  EXPECT_EQ(running.listener().Find(""), nullptr);
  EXPECT_EQ(running.listener().Find(std::string(16, '\0')), nullptr);
}

TEST(Registration, EveryPageIsReservedUntilTheRelease) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const FileDescriptor memfd = MakeMemfd(kFourthPageBytes);
  const auto answer =
      client.Register(memfd.get(), kFourthPageBytes, RegionAccess::kRead);
  EXPECT_EQ(running.admission().bytes_in_flight(), kReserved);
  EXPECT_EQ(running.admission().requests_in_flight(), 0);
  EXPECT_EQ(running.listener().regions(), 1);
  EXPECT_EQ(running.listener().bytes(), kFourthPageBytes);
  EXPECT_EQ(client.Release(answer.handle).code, grpc::StatusCode::OK);
  EXPECT_EQ(running.listener().Find(answer.handle), nullptr);
  EXPECT_EQ(running.admission().bytes_in_flight(), 0);
  EXPECT_EQ(running.listener().regions(), 0);
  EXPECT_EQ(running.listener().bytes(), 0);
  EXPECT_EQ(CountMemfdMappings(), 0);
}

TEST(Registration, AHandleIsReleasedOnceAndByItsConnectionOnly) {
  RunningListener running;
  SharedMemoryClient owner(running.path());
  SharedMemoryClient other(running.path());
  const FileDescriptor memfd = MakeMemfd(kFourthPageBytes);
  const auto answer =
      owner.Register(memfd.get(), kFourthPageBytes, RegionAccess::kRead);

  const auto stolen = other.Release(answer.handle);
  EXPECT_EQ(stolen.code, grpc::StatusCode::NOT_FOUND);
  EXPECT_NE(running.listener().Find(answer.handle), nullptr);
  // Another connection's handle looks like an unknown one.
  const auto unknown = other.Release(std::string(16, 'x'));
  EXPECT_EQ(unknown.code, stolen.code);
  EXPECT_EQ(unknown.message, stolen.message);

  EXPECT_EQ(owner.Release(answer.handle).code, grpc::StatusCode::OK);
  EXPECT_EQ(owner.Release(answer.handle).code, grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(running.listener().errors(), 3);
}

TEST(Registration, AMemfdThatIsNotGoodIsRefusedAndTheConnectionGoesOn) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  // The answer shows that the server has accepted the connection.
  client.Release(std::string(16, 'x'));
  const int before = CountDescriptors();
  const auto refuse = [&](const FileDescriptor& memfd, uint64_t size,
                          RegionAccess access, const std::string& reason) {
    const auto answer = client.Register(memfd.get(), size, access);
    EXPECT_EQ(answer.code, grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(answer.message, HasSubstr(reason));
    EXPECT_EQ(answer.message.find('/'), std::string::npos);
  };
  constexpr auto kRead = RegionAccess::kRead;
  refuse(MakeMemfd(kFourthPageBytes, 0), kFourthPageBytes, kRead,
         "lacks seals");
  refuse(MakeMemfd(kFourthPageBytes, F_SEAL_SHRINK | F_SEAL_GROW),
         kFourthPageBytes, kRead, "lacks seals: F_SEAL_SEAL");
  refuse(MakeMemfd(kFourthPageBytes, kAllSeals, Pages::kNone), kFourthPageBytes,
         kRead, "holes");
  refuse(MakeMemfd(kFourthPageBytes), kFourthPageBytes + 1, kRead, "size");
  refuse(MakeMemfd(kFourthPageBytes), kFourthPageBytes - 1, kRead, "size");
  refuse(MakeMemfd(kFourthPageBytes), 0, kRead, "size is 0");
  refuse(SharedMemoryClient::NewSocket(), kFourthPageBytes, kRead,
         "not a memfd");
  refuse(MakeMemfd(kFourthPageBytes, kAllSeals | F_SEAL_WRITE),
         kFourthPageBytes, RegionAccess::kWrite, "sealed against writing");
  EXPECT_EQ(CountDescriptors(), before);
  EXPECT_EQ(running.admission().bytes_in_flight(), 0);
  EXPECT_EQ(running.listener().errors(), 9);
  EXPECT_EQ(
      client
          .Register(MakeMemfd(kFourthPageBytes).get(), kFourthPageBytes, kRead)
          .code,
      grpc::StatusCode::OK);
}

TEST(Registration, OneConnectionHasSoManyBytes) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const FileDescriptor large = MakeMemfd(15 * kMebibyte);
  const FileDescriptor small = MakeMemfd(kMebibyte);
  const FileDescriptor page = MakeMemfd(4096);
  constexpr auto kRead = RegionAccess::kRead;
  const auto first = client.Register(large.get(), 15 * kMebibyte, kRead);
  EXPECT_EQ(first.code, grpc::StatusCode::OK);
  EXPECT_EQ(client.Register(small.get(), kMebibyte, kRead).code,
            grpc::StatusCode::OK);
  for (const uint64_t size : {uint64_t{4096}, uint64_t{1} << 63,
                              std::numeric_limits<uint64_t>::max()}) {
    const auto refused = client.Register(page.get(), size, kRead);
    EXPECT_EQ(refused.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(refused.message, HasSubstr("more than 16777216"));
  }
  client.Release(first.handle);
  EXPECT_EQ(client.Register(page.get(), 4096, kRead).code,
            grpc::StatusCode::OK);
}

TEST(Registration, OneConnectionHasSoManyRegions) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const FileDescriptor memfd = MakeMemfd(kFourthPageBytes);
  std::string handle;
  for (int i = 0; i < 8; ++i) {
    const auto answer =
        client.Register(memfd.get(), kFourthPageBytes, RegionAccess::kRead);
    ASSERT_EQ(answer.code, grpc::StatusCode::OK);
    handle = answer.handle;
  }
  const auto refused =
      client.Register(memfd.get(), kFourthPageBytes, RegionAccess::kRead);
  EXPECT_EQ(refused.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.message, HasSubstr("8 regions"));
  client.Release(handle);
  EXPECT_EQ(
      client.Register(memfd.get(), kFourthPageBytes, RegionAccess::kRead).code,
      grpc::StatusCode::OK);
}

// Regions get half: the rest is for requests, even if regions are idle.
TEST(Registration, AllConnectionsTogetherStayWithinHalfOfTheBudget) {
  RunningListener running(TestOptions(), 24 * kMebibyte);
  SharedMemoryClient one(running.path());
  SharedMemoryClient two(running.path());
  const FileDescriptor memfd = MakeMemfd(8 * kMebibyte);
  constexpr auto kRead = RegionAccess::kRead;
  EXPECT_EQ(one.Register(memfd.get(), 8 * kMebibyte, kRead).code,
            grpc::StatusCode::OK);
  // The same memory counts again, since it may change owners.
  const auto refused = two.Register(memfd.get(), 8 * kMebibyte, kRead);
  EXPECT_EQ(refused.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.message, HasSubstr("has not that much left"));
  one.Finish();
  EXPECT_EQ(two.Register(memfd.get(), 8 * kMebibyte, kRead).code,
            grpc::StatusCode::OK);
  const FileDescriptor large = MakeMemfd(13 * kMebibyte);
  SharedMemoryClient three(running.path());
  EXPECT_THAT(three.Register(large.get(), 13 * kMebibyte, kRead).message,
              HasSubstr("more than half of --max_bytes_in_flight"));
}

TEST(Registration, AServerThatDrainsRefuses) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const FileDescriptor memfd = MakeMemfd(kFourthPageBytes);
  const auto before =
      client.Register(memfd.get(), kFourthPageBytes, RegionAccess::kRead);
  running.admission().Close();
  EXPECT_EQ(
      client.Register(memfd.get(), kFourthPageBytes, RegionAccess::kRead).code,
      grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(client.Release(before.handle).code, grpc::StatusCode::OK);
  EXPECT_EQ(running.admission().bytes_in_flight(), 0);
}

TEST(Registration, ASealedSizeStaysAndPunchedPagesComeBackAsZeros) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const ClientMemory memory(kFourthPageBytes);
  std::fill_n(memory.data(), kFourthPageBytes, uint8_t{1});
  const auto answer =
      client.Register(memory.memfd(), kFourthPageBytes, RegionAccess::kWrite);
  const auto region = running.listener().Find(answer.handle);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(ftruncate(memory.memfd(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(memory.memfd(), 2 * kFourthPageBytes), -1);

  ASSERT_EQ(fallocate(memory.memfd(),
                      FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kReserved),
            0);
  struct stat found {};
  ASSERT_EQ(fstat(memory.memfd(), &found), 0);
  ASSERT_EQ(found.st_blocks, 0);
  EXPECT_TRUE(std::all_of(region->data(), region->data() + kFourthPageBytes,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  std::fill_n(region->data(), kFourthPageBytes, std::byte{3});
  EXPECT_EQ(memory.data()[kFourthPageBytes - 1], 3);
  // The pages that the server's accesses recreated are those that were
  // reserved.
  ASSERT_EQ(fstat(memory.memfd(), &found), 0);
  EXPECT_LE(found.st_blocks * 512, running.admission().bytes_in_flight());
}

}  // namespace
}  // namespace counterweight::server
