#include "server/base/listen_address.h"

#include <string>

#include "gtest/gtest.h"
#include "server/base/config_error.h"

namespace counterweight::server {
namespace {

TEST(ListenAddress, PrintsWhatItReads) {
  for (const char* text :
       {"127.0.0.1:50051", "[::1]:65535", "0.0.0.0:1", "[::]:2",
        "[::ffff:10.0.0.1]:3", "unix:/run/cw.sock", "unix:relative.sock"}) {
    EXPECT_EQ(ParseListenAddress(text).value().ToString(), text);
  }
}

TEST(ListenAddress, LocalhostIsOneAddress) {
  const ListenAddress address = ParseListenAddress("localhost:0").value();
  EXPECT_EQ(address.ToString(), "127.0.0.1:0");
  EXPECT_TRUE(IsLocal(address));
}

// Names are checked once and bound later: a resolver could answer differently.
TEST(ListenAddress, RefusesNamesAndShortForms) {
  for (const std::string text :
       {"example.com:1", "Localhost:1", "localhost.:1", "[localhost]:1",
        "ip6-localhost:1", "0:1", "0x0:1", "0x7f000001:1", "127.1:1",
        "2130706433:1", "127.0.0.01:1", "0177.0.0.1:1", "127.0.0.1.:1",
        " 127.0.0.1:1", "[127.0.0.1]:1", "[fe80::1%lo]:1", "[1]:1"}) {
    const std::string error = MessageOf(ParseListenAddress(text).status());
    EXPECT_NE(error.find("'" + text + "' has no valid host"), std::string::npos)
        << text << ": " << error;
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
    const std::string error = MessageOf(ParseListenAddress(text).status());
    EXPECT_NE(error.find("'" + text + "'"), std::string::npos)
        << text << ": " << error;
  }
}

TEST(ListenAddress, KnowsWhoCanReachIt) {
  const auto is_local = [](const char* text) {
    return IsLocal(ParseListenAddress(text).value());
  };
  EXPECT_TRUE(is_local("127.0.0.1:1"));
  EXPECT_TRUE(is_local("127.1.2.3:1"));
  EXPECT_TRUE(is_local("[::1]:1"));
  EXPECT_TRUE(is_local("unix:/run/cw.sock"));
  EXPECT_FALSE(is_local("0.0.0.0:1"));
  EXPECT_FALSE(is_local("[::]:1"));
  EXPECT_FALSE(is_local("10.0.0.1:1"));
  // An IPv4-mapped IPv6 address is reached over IPv4.
  EXPECT_FALSE(is_local("[::ffff:10.0.0.1]:1"));
}

}  // namespace
}  // namespace counterweight::server
