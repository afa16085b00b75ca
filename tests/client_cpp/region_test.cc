#include "client/cpp/shared_memory/region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "client/cpp/client.h"

namespace counterweight::client {
namespace {

TEST(Region, IsSealedAndHasItsPages) {
  std::shared_ptr<Region> region;
  ASSERT_TRUE(Region::Create(5000, Access::kInput, &region).ok());
  EXPECT_GE(region->size(), 5000U);
  EXPECT_EQ(region->size() % static_cast<size_t>(sysconf(_SC_PAGESIZE)), 0U);
  EXPECT_EQ(fcntl(region->descriptor(), F_GET_SEALS),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  struct stat file {};
  ASSERT_EQ(fstat(region->descriptor(), &file), 0);
  EXPECT_EQ(static_cast<size_t>(file.st_size), region->size());
  EXPECT_GE(static_cast<size_t>(file.st_blocks) * 512, region->size());
  for (size_t i = 0; i < region->size(); ++i) {
    ASSERT_EQ(region->data()[i], std::byte{0});
  }
}

TEST(Region, ContainsWhatLiesInIt) {
  std::shared_ptr<Region> region;
  ASSERT_TRUE(Region::Create(1, Access::kOutput, &region).ok());
  const std::byte* const begin = region->data();
  const size_t size = region->size();
  EXPECT_TRUE(region->Contains(begin, size));
  EXPECT_TRUE(region->Contains(begin + size, 0));
  EXPECT_FALSE(region->Contains(begin, size + 1));
  EXPECT_FALSE(region->Contains(begin + 1, size));
  EXPECT_FALSE(region->Contains(begin - 1, 1));
  EXPECT_FALSE(region->Contains(begin + 1, SIZE_MAX));
}

// Descriptors of shared memory in this process.
int Descriptors() {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the one of the listing itself
    const std::string target =
        std::filesystem::read_symlink(entry, gone).string();
    if (target.find("memfd:counterweight") != std::string::npos) ++count;
  }
  return count;
}

TEST(Region, GivesItsDescriptorAndItsAddressesBack) {
  ASSERT_EQ(Descriptors(), 0);
  std::shared_ptr<Region> region;
  ASSERT_TRUE(Region::Create(5000, Access::kInput, &region).ok());
  EXPECT_EQ(Descriptors(), 1);
  std::byte* const data = region->data();
  const size_t size = region->size();
  region.reset();
  EXPECT_EQ(Descriptors(), 0);
  EXPECT_EQ(msync(data, size, MS_ASYNC), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(Region, BeyondTheMachinesMemoryIsAnError) {
  std::shared_ptr<Region> region;
  const auto memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                      static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 2, memory + 1, memory}) {
    const Status status = Region::Create(bytes, Access::kInput, &region);
    EXPECT_EQ(status.code, StatusCode::kResourceExhausted);
    EXPECT_FALSE(status.message.empty());
    EXPECT_EQ(region, nullptr);
  }
}

TEST(SharedBuffer, MayOutliveItsClient) {
  SharedBuffer buffer;
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size(), 0U);
  {
    Client client("unix:/nonexistent/counterweight.sock");
    ASSERT_TRUE(client.Allocate(400, Access::kInput, &buffer).ok());
  }
  buffer.As<float>(100)[99] = 1.5F;
  EXPECT_EQ(buffer.As<float>(100)[99], 1.5F);
}

}  // namespace
}  // namespace counterweight::client
