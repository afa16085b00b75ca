#include "server/shared_memory/memfd.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/shared_memory/shared_memory_client.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::server {
namespace {

using testing::HasSubstr;

constexpr int64_t kUnevenBytes = 10000;  // not whole pages

std::string Problem(const FileDescriptor& file, uint64_t size = kUnevenBytes,
                    RegionAccess access = RegionAccess::kRead) {
  return MemfdProblem(ReadMemfdFacts(file.get()), size, access);
}

// The kernel's facts about a valid memfd.
MemfdFacts GoodFacts() { return ReadMemfdFacts(MakeMemfd(kUnevenBytes).get()); }

// The same file, opened again.
FileDescriptor Reopen(const FileDescriptor& file, int flags) {
  return FileDescriptor(
      open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), flags));
}

TEST(Memfd, ASealedOneIsGood) {
  const FileDescriptor memfd = MakeMemfd(kUnevenBytes);
  EXPECT_EQ(Problem(memfd), "");
  EXPECT_EQ(Problem(memfd, kUnevenBytes, RegionAccess::kWrite), "");
}

TEST(Memfd, EachOfTheThreeSealsIsNeeded) {
  EXPECT_THAT(Problem(MakeMemfd(kUnevenBytes, 0)),
              HasSubstr("F_SEAL_SHRINK F_SEAL_GROW F_SEAL_SEAL"));
  EXPECT_THAT(Problem(MakeMemfd(kUnevenBytes, kAllSeals & ~F_SEAL_SHRINK)),
              HasSubstr("lacks seals: F_SEAL_SHRINK"));
  EXPECT_THAT(Problem(MakeMemfd(kUnevenBytes, kAllSeals & ~F_SEAL_GROW)),
              HasSubstr("lacks seals: F_SEAL_GROW"));
  EXPECT_THAT(Problem(MakeMemfd(kUnevenBytes, kAllSeals & ~F_SEAL_SEAL)),
              HasSubstr("lacks seals: F_SEAL_SEAL"));
  // Without MFD_ALLOW_SEALING a memfd has only the seal F_SEAL_SEAL.
  EXPECT_THAT(Problem(MakeMemfd(kUnevenBytes, 0, Pages::kAll, MFD_CLOEXEC)),
              HasSubstr("lacks seals: F_SEAL_SHRINK F_SEAL_GROW"));
}

TEST(Memfd, ItsSizeIsTheDeclaredOne) {
  const FileDescriptor memfd = MakeMemfd(kUnevenBytes);
  EXPECT_THAT(Problem(memfd, kUnevenBytes - 1), HasSubstr("10000 bytes"));
  EXPECT_THAT(Problem(memfd, kUnevenBytes + 1), HasSubstr("10000 bytes"));
  EXPECT_THAT(Problem(memfd, 0), HasSubstr("size is 0"));
  EXPECT_THAT(Problem(memfd, std::numeric_limits<uint64_t>::max()),
              HasSubstr("10000 bytes"));
  EXPECT_THAT(Problem(MakeMemfd(0), 0), HasSubstr("size is 0"));
}

TEST(Memfd, ExtremeSizesDoNotOverflow) {
  MemfdFacts facts = GoodFacts();
  facts.size = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(MemfdProblem(facts, facts.size, RegionAccess::kRead),
              HasSubstr("holes"));
  facts.size = -1;
  EXPECT_THAT(MemfdProblem(facts, std::numeric_limits<uint64_t>::max(),
                           RegionAccess::kRead),
              HasSubstr("memfd has -1"));
}

TEST(Memfd, ItsPagesExist) {
  constexpr int64_t kGibibyte = int64_t{1} << 30;
  const FileDescriptor sparse = MakeMemfd(kGibibyte, kAllSeals, Pages::kNone);
  EXPECT_THAT(Problem(sparse, kGibibyte), HasSubstr("holes"));

  const FileDescriptor one_hole = MakeMemfd(8 * kUnevenBytes);
  ASSERT_EQ(fallocate(one_hole.get(),
                      FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096),
            0);
  EXPECT_THAT(Problem(one_hole, 8 * kUnevenBytes), HasSubstr("holes"));
}

// Only the first of two pages exists, in blocks of 512 bytes: the last byte is
// in a hole.
TEST(Memfd, ItsLastPageExists) {
  MemfdFacts facts = GoodFacts();
  facts.size = 4097;
  facts.blocks = 8;
  EXPECT_THAT(MemfdProblem(facts, 4097, RegionAccess::kRead),
              HasSubstr("holes"));
  facts.blocks = 16;
  EXPECT_EQ(MemfdProblem(facts, 4097, RegionAccess::kRead), "");
  facts.size = 4096;
  facts.blocks = 8;
  EXPECT_EQ(MemfdProblem(facts, 4096, RegionAccess::kRead), "");
}

TEST(Memfd, HugePagesAreRefused) {
  MemfdFacts facts = GoodFacts();
  facts.file_system = HUGETLBFS_MAGIC;
  EXPECT_THAT(MemfdProblem(facts, kUnevenBytes, RegionAccess::kRead),
              HasSubstr("MFD_HUGETLB"));
}

TEST(Memfd, RealHugePagesAreRefused) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  const FileDescriptor huge(
      memfd_create(kMemfdName, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!huge.is_open()) GTEST_SKIP() << "the kernel has no huge pages";
  ASSERT_EQ(ftruncate(huge.get(), kHugePage), 0);
  ASSERT_EQ(fcntl(huge.get(), F_ADD_SEALS, kAllSeals), 0);
  EXPECT_THAT(Problem(huge, kHugePage), HasSubstr("MFD_HUGETLB"));
}

TEST(Memfd, OtherFilesAreRefused) {
  const TemporaryFolder folder;
  const FileDescriptor regular(
      open(folder.File("regular").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(regular.get(), kUnevenBytes), 0);
  EXPECT_THAT(Problem(regular), HasSubstr("not a memfd"));
  EXPECT_THAT(Problem(FileDescriptor(open("/dev/zero", O_RDWR | O_CLOEXEC))),
              HasSubstr("not a memfd"));
  EXPECT_THAT(Problem(FileDescriptor(open("/", O_RDONLY | O_CLOEXEC))),
              HasSubstr("not a memfd"));
  EXPECT_THAT(Problem(FileDescriptor(eventfd(0, EFD_CLOEXEC))),
              HasSubstr("not a memfd"));
  EXPECT_THAT(Problem(SharedMemoryClient::NewSocket()),
              HasSubstr("not a memfd"));
  EXPECT_THAT(Problem(Reopen(MakeMemfd(kUnevenBytes), O_PATH | O_CLOEXEC)),
              HasSubstr("not a memfd"));
  EXPECT_THAT(Problem(FileDescriptor()), HasSubstr("not a memfd"));
}

TEST(Memfd, AFileOfSharedMemoryByNameIsRefused) {
  const std::string name = "/counterweight-test-" + std::to_string(getpid());
  const FileDescriptor named(
      shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  if (!named.is_open()) GTEST_SKIP() << "no /dev/shm here";
  shm_unlink(name.c_str());
  ASSERT_EQ(posix_fallocate(named.get(), 0, kUnevenBytes), 0);
  EXPECT_THAT(Problem(named), HasSubstr("lacks seals"));
}

TEST(Memfd, WhoWritesNeedsAFileThatCanBeWritten) {
  for (const int seal : {F_SEAL_WRITE, F_SEAL_FUTURE_WRITE}) {
    const FileDescriptor sealed = MakeMemfd(kUnevenBytes, kAllSeals | seal);
    EXPECT_EQ(Problem(sealed, kUnevenBytes, RegionAccess::kRead), "");
    EXPECT_THAT(Problem(sealed, kUnevenBytes, RegionAccess::kWrite),
                HasSubstr("sealed against writing"));
  }
  const FileDescriptor read_only =
      Reopen(MakeMemfd(kUnevenBytes), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(Problem(read_only, kUnevenBytes, RegionAccess::kRead), "");
  EXPECT_THAT(Problem(read_only, kUnevenBytes, RegionAccess::kWrite),
              HasSubstr("not open for reading and writing"));
  const FileDescriptor write_only =
      Reopen(MakeMemfd(kUnevenBytes), O_WRONLY | O_CLOEXEC);
  EXPECT_THAT(Problem(write_only, kUnevenBytes, RegionAccess::kRead),
              HasSubstr("not open for reading"));
}

}  // namespace
}  // namespace counterweight::server
