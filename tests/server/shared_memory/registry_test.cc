#include "server/shared_memory/registry.h"

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

// A region without memory, with an action at its end.
class TestRegion final : public Region {
 public:
  explicit TestRegion(std::function<void()> at_end = nullptr)
      : at_end_(std::move(at_end)) {}
  TestRegion(const TestRegion&) = delete;
  TestRegion& operator=(const TestRegion&) = delete;
  ~TestRegion() override {
    if (at_end_) at_end_();
  }

  std::byte* data() const override { return nullptr; }
  int64_t size() const override { return 0; }
  RegionAccess access() const override { return RegionAccess::kRead; }

 private:
  const std::function<void()> at_end_;
};

std::string_view Bytes(const RegionHandle& handle) {
  return {reinterpret_cast<const char*>(handle.data()), handle.size()};
}

TEST(Registry, FindsWhatWasAddedUntilItIsRemoved) {
  RegionRegistry registry;
  const auto first = std::make_shared<const TestRegion>();
  const auto second = std::make_shared<const TestRegion>();
  const RegionHandle one = registry.Add(first).value();
  const RegionHandle two = registry.Add(second).value();
  EXPECT_NE(one, two);
  EXPECT_EQ(registry.Find(Bytes(one)), first);
  EXPECT_EQ(registry.Find(Bytes(two)), second);
  registry.Remove(one);
  registry.Remove(one);
  EXPECT_EQ(registry.Find(Bytes(one)), nullptr);
  EXPECT_EQ(registry.Find(Bytes(two)), second);
  EXPECT_EQ(registry.Find(Bytes(two).substr(1)), nullptr);
  EXPECT_EQ(registry.Find(std::string(Bytes(two)) + "x"), nullptr);
  EXPECT_EQ(registry.Find(""), nullptr);
}

// Unmapping gigabytes takes long: requests find their regions meanwhile.
TEST(Registry, FindsOthersWhileARegionEnds) {
  RegionRegistry registry;
  const auto lasting = std::make_shared<const TestRegion>();
  const RegionHandle handle = registry.Add(lasting).value();
  std::thread request;
  std::promise<std::shared_ptr<const Region>> found;
  std::future<std::shared_ptr<const Region>> answer = found.get_future();
  std::future_status status = std::future_status::deferred;
  auto ending = std::make_shared<const TestRegion>([&] {
    request =
        std::thread([&] { found.set_value(registry.Find(Bytes(handle))); });
    status = answer.wait_for(std::chrono::seconds(30));
  });
  registry.Remove(registry.Add(std::move(ending)).value());
  EXPECT_EQ(status, std::future_status::ready);
  EXPECT_EQ(answer.get(), lasting);
  request.join();
}

}  // namespace
}  // namespace counterweight::server
