#include "server/listen_address.h"

#include <string>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

TEST(ListenAddress, PrintsWhatItReads) {
  for (const char* text :
       {"127.0.0.1:50051", "localhost:0", "[::1]:65535", "0.0.0.0:1",
        "unix:/run/cw.sock", "unix:relative.sock"}) {
    ListenAddress address;
    std::string error;
    EXPECT_TRUE(ParseListenAddress(text, &address, &error)) << error;
    EXPECT_EQ(address.ToString(), text);
  }
}

TEST(ListenAddress, RefusesWhatIsNoneAndNamesIt) {
  const std::string long_path = "unix:/" + std::string(108, 'x');
  for (const std::string& text :
       {std::string("127.0.0.1"), std::string(":50051"),
        std::string("::1:50051"), std::string("host:65536"),
        std::string("host:-1"), std::string("host:"), std::string("host:1x"),
        std::string("[host]:1"), std::string("[::1:1"), std::string("a,b:1"),
        std::string("unix:"), long_path, std::string("")}) {
    ListenAddress address;
    std::string error;
    EXPECT_FALSE(ParseListenAddress(text, &address, &error)) << text;
    EXPECT_NE(error.find("'" + text + "'"), std::string::npos) << error;
  }
}

TEST(ListenAddress, KnowsWhoCanReachIt) {
  const auto is_local = [](const char* text) {
    ListenAddress address;
    std::string error;
    EXPECT_TRUE(ParseListenAddress(text, &address, &error)) << error;
    return IsLocal(address);
  };
  EXPECT_TRUE(is_local("127.0.0.1:1"));
  EXPECT_TRUE(is_local("127.1.2.3:1"));
  EXPECT_TRUE(is_local("[::1]:1"));
  EXPECT_TRUE(is_local("unix:/run/cw.sock"));
  EXPECT_FALSE(is_local("0.0.0.0:1"));
  EXPECT_FALSE(is_local("[::]:1"));
  EXPECT_FALSE(is_local("10.0.0.1:1"));
  // An IPv4 address in IPv6 clothes is reached over IPv4.
  EXPECT_FALSE(is_local("[::ffff:10.0.0.1]:1"));
}

}  // namespace
}  // namespace counterweight::server
