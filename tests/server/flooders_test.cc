#include "server/listen/flooders.h"

#include <chrono>
#include <string>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

constexpr Flooders::Time kStart{std::chrono::hours(1)};

// The closing at which the address is refused, counted from 1.
int ClosingsUntilRefused(Flooders* flooders, const std::string& address,
                         Flooders::Time now) {
  int count = 1;
  while (!flooders->Add(address, now)) ++count;
  return count;
}

TEST(Flooders, TheThirdConnectionCostsTheAddressTenSeconds) {
  Flooders flooders;
  EXPECT_FALSE(flooders.IsRefused("10.0.0.1", kStart));
  EXPECT_EQ(ClosingsUntilRefused(&flooders, "10.0.0.1", kStart), 3);
  EXPECT_TRUE(flooders.IsRefused("10.0.0.1", kStart));
  EXPECT_TRUE(flooders.IsRefused("10.0.0.1", kStart + std::chrono::seconds(9)));
  EXPECT_FALSE(
      flooders.IsRefused("10.0.0.1", kStart + std::chrono::seconds(10)));
  EXPECT_FALSE(flooders.IsRefused("10.0.0.2", kStart));
}

TEST(Flooders, OneMoreSoonAfterwardsCostsItAgain) {
  Flooders flooders;
  ClosingsUntilRefused(&flooders, "10.0.0.1", kStart);
  EXPECT_TRUE(flooders.Add("10.0.0.1", kStart + std::chrono::seconds(11)));
  EXPECT_TRUE(
      flooders.IsRefused("10.0.0.1", kStart + std::chrono::seconds(20)));
}

TEST(Flooders, AMinuteLaterTheCountBeginsAnew) {
  Flooders flooders;
  ClosingsUntilRefused(&flooders, "10.0.0.1", kStart);
  EXPECT_EQ(ClosingsUntilRefused(&flooders, "10.0.0.1",
                                 kStart + std::chrono::seconds(61)),
            3);
}

TEST(Flooders, AMinuteHasItsLastInstant) {
  Flooders flooders;
  flooders.Add("10.0.0.1", kStart);
  flooders.Add("10.0.0.1", kStart);
  EXPECT_TRUE(flooders.Add("10.0.0.1", kStart + std::chrono::seconds(60)));
  EXPECT_FALSE(flooders.Add("10.0.0.1", kStart + std::chrono::seconds(60) +
                                            std::chrono::nanoseconds(1)));
}

// One that floods on is refused for ten seconds from its last closing.
TEST(Flooders, ALaterClosingRenewsTheRefusal) {
  Flooders flooders;
  ClosingsUntilRefused(&flooders, "10.0.0.1", kStart);
  for (const int second : {5, 9, 15}) {
    EXPECT_TRUE(
        flooders.Add("10.0.0.1", kStart + std::chrono::seconds(second)));
  }
  EXPECT_TRUE(
      flooders.IsRefused("10.0.0.1", kStart + std::chrono::seconds(24)));
  EXPECT_FALSE(
      flooders.IsRefused("10.0.0.1", kStart + std::chrono::seconds(25)));
  // Its closings of before count for nothing once their minute is over.
  flooders.Add("10.0.0.1", kStart + std::chrono::seconds(61));
  EXPECT_FALSE(
      flooders.IsRefused("10.0.0.1", kStart + std::chrono::seconds(61)));
}

TEST(Flooders, AddressesAreCountedApart) {
  Flooders flooders;
  for (const char* const address : {"10.0.0.1", "10.0.0.2", "::1", "fd00::1"}) {
    EXPECT_FALSE(flooders.Add(address, kStart));
    EXPECT_FALSE(flooders.Add(address, kStart));
  }
  EXPECT_EQ(flooders.size(), 4U);
  EXPECT_TRUE(flooders.Add("10.0.0.2", kStart));
  EXPECT_FALSE(flooders.IsRefused("10.0.0.1", kStart));
  EXPECT_FALSE(flooders.IsRefused("fd00::1", kStart));
}

TEST(Flooders, OneInFiftySecondsCostsNothing) {
  Flooders flooders;
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(
        flooders.Add("10.0.0.1", kStart + i * std::chrono::seconds(50)))
        << i;
  }
}

TEST(Flooders, OfIpv6TheNetworkCounts) {
  Flooders flooders;
  flooders.Add("2001:db8::1", kStart);
  flooders.Add("2001:db8::ffff:1", kStart);
  EXPECT_TRUE(flooders.Add("2001:db8:0:0:8::", kStart));
  EXPECT_TRUE(flooders.IsRefused("2001:db8::2", kStart));
  EXPECT_FALSE(flooders.IsRefused("2001:db8:0:1::1", kStart));
}

TEST(Flooders, Ipv4InIpv6IsOneAddress) {
  Flooders flooders;
  ClosingsUntilRefused(&flooders, "::ffff:10.0.0.1", kStart);
  EXPECT_TRUE(flooders.IsRefused("::ffff:10.0.0.1", kStart));
  EXPECT_FALSE(flooders.IsRefused("::ffff:10.0.0.2", kStart));
}

TEST(Flooders, TheAddressThatWasQuietLongestMakesRoom) {
  Flooders flooders;
  flooders.Add("10.0.0.1", kStart);
  flooders.Add("10.0.0.2", kStart + std::chrono::seconds(1));
  flooders.Add("10.0.0.1", kStart + std::chrono::seconds(2));
  const auto later = kStart + std::chrono::seconds(3);
  for (size_t i = flooders.size(); i < Flooders::kMaxAddresses; ++i) {
    flooders.Add("host" + std::to_string(i), later);
  }
  // One that is known needs no room, so that none leaves.
  flooders.Add("host1000", later);
  EXPECT_EQ(flooders.size(), Flooders::kMaxAddresses);
  flooders.Add("another", later);
  EXPECT_EQ(flooders.size(), Flooders::kMaxAddresses);
  EXPECT_TRUE(flooders.Add("10.0.0.1", later)) << "its third: it was kept";
  EXPECT_EQ(ClosingsUntilRefused(&flooders, "10.0.0.2", later), 3)
      << "it began again: it had left";
}

TEST(Flooders, ManyAddressesTakeBoundedMemory) {
  Flooders flooders;
  ClosingsUntilRefused(&flooders, "10.0.0.1", kStart + std::chrono::seconds(1));
  flooders.Add("10.0.0.2", kStart);
  for (int i = 0; i < 100'000; ++i) {
    flooders.Add("11." + std::to_string(i / 65536) + "." +
                     std::to_string(i / 256 % 256) + "." +
                     std::to_string(i % 256),
                 kStart);
    ASSERT_LE(flooders.size(), Flooders::kMaxAddresses);
  }
  // The one that was closed last stays.
  EXPECT_TRUE(flooders.IsRefused("10.0.0.1", kStart + std::chrono::seconds(2)));
}

}  // namespace
}  // namespace counterweight::server
