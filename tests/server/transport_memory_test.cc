#include "server/call/transport_memory.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;

TEST(TransportMemory, GrowsByWhatAdmissionAccountsFor) {
  std::vector<int64_t> sizes;
  TransportMemory memory([&](int64_t bytes) { sizes.push_back(bytes); });
  memory.SetBytes(100);
  std::shared_ptr<void> first = memory.Lend(20);
  std::shared_ptr<void> second = memory.Lend(3);
  first.reset();
  memory.SetBytes(200);
  second.reset();
  EXPECT_THAT(sizes, ElementsAre(100, 120, 123, 103, 203, 200));
}

TEST(TransportMemory, LendsNothingForNothing) {
  std::vector<int64_t> sizes;
  TransportMemory memory([&](int64_t bytes) { sizes.push_back(bytes); });
  EXPECT_EQ(memory.Lend(0), nullptr);
  EXPECT_THAT(sizes, ElementsAre());
}

}  // namespace
}  // namespace counterweight::server
