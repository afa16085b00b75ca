// Regions that are kept for the next batch, and regions that are freed.
#include "client/cpp/shared_memory/registry.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace counterweight::client {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::shared_ptr<Region> Acquire(Registry* registry, size_t bytes,
                                Access access) {
  std::shared_ptr<Region> region;
  EXPECT_TRUE(registry->Acquire(bytes, access, &region).ok());
  EXPECT_GE(region->size(), bytes);
  EXPECT_EQ(region->access(), access);
  return region;
}

TEST(Registry, KeepsIdleRegionsUpToItsLimitInAll) {
  const auto registry = std::make_shared<Registry>(16 * kMiB);
  std::vector<std::shared_ptr<Region>> regions;
  std::vector<std::weak_ptr<Region>> watched;
  for (int i = 0; i < 3; ++i) {
    // Less than 8 MiB are 8 MiB.
    regions.push_back(Acquire(registry.get(), 5 * kMiB, Access::kOutput));
    watched.push_back(regions.back());
  }
  for (auto& region : regions) registry->Recycle(std::move(region));
  EXPECT_FALSE(watched[0].expired());
  EXPECT_FALSE(watched[1].expired());
  EXPECT_TRUE(watched[2].expired());
  // A taken region makes room for another one.
  const auto taken = Acquire(registry.get(), 5 * kMiB, Access::kOutput);
  EXPECT_EQ(taken, watched[0].lock());
  registry->Recycle(Acquire(registry.get(), 5 * kMiB, Access::kInput));
  EXPECT_FALSE(watched[1].expired());
}

TEST(Registry, IdleRegionsServeTheirOwnAccess) {
  const auto registry = std::make_shared<Registry>(64 * kMiB);
  std::shared_ptr<Region> kept = Acquire(registry.get(), kMiB, Access::kOutput);
  const Region* const output = kept.get();
  registry->Recycle(std::move(kept));
  EXPECT_NE(Acquire(registry.get(), kMiB, Access::kInput).get(), output);
  EXPECT_EQ(Acquire(registry.get(), kMiB, Access::kOutput).get(), output);
}

TEST(Registry, TrimmingEndsIdleRegionsOnly) {
  const auto registry = std::make_shared<Registry>(64 * kMiB);
  EXPECT_FALSE(registry->Trim());
  std::shared_ptr<Region> idle = Acquire(registry.get(), kMiB, Access::kInput);
  const std::shared_ptr<Region> used =
      Acquire(registry.get(), kMiB, Access::kInput);
  std::shared_ptr<Region> allocated;
  ASSERT_TRUE(registry->Allocate(100, Access::kInput, &allocated).ok());
  const std::weak_ptr<Region> watched = idle;
  registry->Recycle(std::move(idle));
  EXPECT_TRUE(registry->Trim());
  EXPECT_TRUE(watched.expired());
  EXPECT_FALSE(registry->Trim());
  EXPECT_EQ(registry->Find(allocated->data(), 100, Access::kInput), allocated);
}

}  // namespace
}  // namespace counterweight::client
