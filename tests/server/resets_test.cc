#include "server/call/resets.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/version_info.h"
#include "gtest/gtest.h"
#include "server/base/old_grpc.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Floods {
  std::vector<std::string> closed;
  Resets resets{
      [this](const std::string& connection) { closed.push_back(connection); }};
  Resets::Time now{std::chrono::hours(1)};

  void Add(const std::string& connection, int64_t count) {
    for (int64_t i = 0; i < count; ++i) resets.Add(connection, now);
  }
};

TEST(Resets, AConnectionIsToldOnceWhenItHasOneTooMany) {
  Floods floods;
  floods.Add("a", Resets::kMost);
  EXPECT_THAT(floods.closed, IsEmpty());
  floods.Add("b", Resets::kMost);
  floods.Add("a", 1);
  EXPECT_THAT(floods.closed, ElementsAre("a"));
  floods.Add("a", Resets::kMost);
  EXPECT_THAT(floods.closed, ElementsAre("a"));
}

TEST(OldGrpcDefences, AreThoseThatThisGrpcNeeds) {
  const std::vector<int> version = {GRPC_CPP_VERSION_MAJOR,
                                    GRPC_CPP_VERSION_MINOR};
  if (version < std::vector<int>{1, 83}) {
    EXPECT_THAT(OldGrpcDefences(),
                ElementsAre("flood_watch", "reset_count", "address_refusal"));
  } else {
    EXPECT_THAT(OldGrpcDefences(), IsEmpty());
  }
}

TEST(Resets, EachWindowBeginsAnew) {
  Floods floods;
  floods.Add("a", Resets::kMost);
  floods.now += Resets::kWindow;
  floods.Add("a", Resets::kMost);
  EXPECT_THAT(floods.closed, IsEmpty());
  floods.Add("a", 1);
  EXPECT_THAT(floods.closed, ElementsAre("a"));
}

}  // namespace
}  // namespace counterweight::server
