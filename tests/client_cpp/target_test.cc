#include "client/cpp/transport/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace counterweight::client {
namespace {

using testing::HasSubstr;

std::string Long(size_t bytes) { return std::string(bytes, 'a'); }

TEST(Target, TakesAddressesAndSockets) {
  for (const std::string& text :
       std::vector<std::string>{"localhost:50051",
                                "a.example:1",
                                "a_b-c.example.:65535",
                                "10.0.0.1:80",
                                "[::1]:1",
                                "[fe80::1%eth0]:1",
                                "x1:1",
                                "0x1g.example:1",
                                "dns:a.example:1",
                                "dns:///a.example:1",
                                "dns:/a.example:1",
                                "dns://10.0.0.1/a.example:1",
                                "dns://10.0.0.1:53/a.example:1",
                                "dns:///[::1]:1",
                                "ipv4:127.0.0.1:1,10.0.0.1:2",
                                "ipv4:///127.0.0.1:1",
                                "ipv6:[::1]:1,[2001:db8::1]:2",
                                "unix:/run/cw.sock",
                                "unix:///run/cw.sock",
                                "unix:cw.sock",
                                "unix:/" + Long(106),
                                "unix:/a b%20c",
                                "unix-abstract:name",
                                "unix-abstract:" + Long(107)}) {
    Target target;
    EXPECT_EQ(ParseTarget(text, &target), "") << text;
  }
}

TEST(Target, NamesTheReasonOfAMalformedOne) {
  using namespace std::string_literals;
  for (const auto& [text, reason] :
       std::vector<std::pair<std::string, const char*>>{
           {"", "no port"},
           {"localhost", "no port"},
           {"localhost:", "no port"},
           {"[::1]", "no port"},
           {"dns:///a.example", "no port"},
           {"ipv4:10.0.0.1", "no port"},
           {"dns:50051", "no port"},
           {"http://localhost:50051", "scheme \"http\""},
           {"https://a.example", "scheme \"https\""},
           {"tcp://10.0.0.1:1", "scheme \"tcp\""},
           {"xds:///a", "scheme \"xds\""},
           {"UNIX:/run/cw.sock", "no number"},
           {"localhost:5005l", "no number"},
           {"localhost:50051/", "no number"},
           {"localhost:http", "no number"},
           {"localhost:-1", "no number"},
           {"localhost:+1", "no number"},
           {"localhost:1 ", "no number"},
           {"localhost:1\n", "no number"},
           {"localhost:1\0"s, "no number"},
           {"localhost:0", "1 to 65535"},
           {"localhost:65536", "1 to 65535"},
           {"127.0.0.1:99999", "1 to 65535"},
           {"a:18446744073709551617", "1 to 65535"},
           {":50051", "no host"},
           {"dns:///:50051", "no host"},
           {" localhost:1", "name has"},
           {"a b:1", "name has"},
           {"a/b:1", "name has"},
           {"user@host:1", "name has"},
           {"h\xc3\xb6st:1", "name has"},
           {"%6cocalhost:1", "name has"},
           {"dns:///a.example:1,b.example:1", "name has"},
           {"::1:50051", "brackets"},
           {"[::1:50051", "IPv6"},
           {"[localhost]:1", "IPv6"},
           {"[127.0.0.1]:1", "IPv6"},
           {"[]:1", "IPv6"},
           {"[:1", "IPv6"},
           {"a..b:1", "1 to 63"},
           {".:1", "1 to 63"},
           {Long(64) + ":1", "1 to 63"},
           {"10.0.0.256:1", "four numbers"},
           {"127.1:1", "four numbers"},
           {"2130706433:1", "four numbers"},
           {"0x7f000001:1", "four numbers"},
           {"ipv4:127.0.0.1:1,localhost:2", "\"localhost:2\""},
           {"ipv4:[::1]:1", "\"[::1]:1\""},
           {"ipv6:127.0.0.1:1", "\"127.0.0.1:1\""},
           {"ipv4:", "\"\""},
           {"ipv4:127.0.0.1:1,", "\"\""},
           {"ipv4:127.0.0.1:1,10.0.0.1:0", "1 to 65535"},
           {"ipv4://a/127.0.0.1:1", "\"a\""},
           {"unix:", "no path"},
           {"unix://", "no path"},
           {"unix:///", "no path"},
           {"unix:/run/", "no path"},
           {"unix://run/cw.sock", "another machine"},
           {"unix:/a?b", "query"},
           {"unix:/a#b", "fragment"},
           {"unix:/a\nb", "control"},
           {"unix:/a\0"s, "control"},
           {"unix:/" + Long(107), "108 bytes"},
           {"unix-abstract:", "no path"},
           {"unix-abstract:" + Long(108), "108 bytes"}}) {
    Target target;
    EXPECT_THAT(ParseTarget(text, &target), HasSubstr(reason)) << text;
  }
}

TEST(Target, TakesAPathAsItIsWritten) {
  for (const auto& [text, encoded] :
       {std::pair{"unix:/a b%41c", "unix:/a%20b%2541c"},
        std::pair{"unix:///a/b-1.s~", "unix:/a/b-1.s~"},
        std::pair{"unix-abstract:\xc3\xb6,[", "unix-abstract:%C3%B6%2C%5B"},
        std::pair{"dns:///a.example:1", "dns:///a.example:1"}}) {
    Target target;
    EXPECT_EQ(ParseTarget(text, &target), "") << text;
    EXPECT_EQ(target.text, encoded);
  }
}

TEST(Target, KnowsThisMachineInAnySpelling) {
  struct Case {
    const char* text;
    bool stays, may_stay;
  };
  for (const Case& known : {Case{"localhost:1", true, true},
                            {"127.9.9.9:1", true, true},
                            {"[::1]:1", true, true},
                            {"[::ffff:127.0.0.1]:1", true, true},
                            {"unix:/a", true, true},
                            {"unix-abstract:a", true, true},
                            {"dns:///localhost:1", true, true},
                            {"ipv4:127.0.0.1:1,127.0.0.2:1", true, true},
                            {"ipv4:127.0.0.1:1,10.0.0.1:1", false, true},
                            {"ipv4:10.0.0.1:1,127.0.0.1:1", false, true},
                            {"dns://10.0.0.1/localhost:1", false, true},
                            {"LocalHost:1", false, true},
                            {"localhost.:1", false, true},
                            {"a.localhost:1", false, true},
                            {"localhost.localdomain:1", false, true},
                            {"localhost4:1", false, true},
                            {"localhost4.localdomain4:1", false, true},
                            {"localhost6:1", false, true},
                            {"localhost6.localdomain6:1", false, true},
                            {"ip6-localhost:1", false, true},
                            {"ip6-loopback:1", false, true},
                            {"0.0.0.0:1", false, true},
                            {"[::]:1", false, true},
                            {"10.0.0.1:1", false, false},
                            {"localhost.example:1", false, false},
                            {"notlocalhost:1", false, false},
                            {"128.0.0.1:1", false, false},
                            {"127.0.0.1.example:1", false, false}}) {
    Target target;
    EXPECT_EQ(ParseTarget(known.text, &target), "") << known.text;
    EXPECT_EQ(StaysHere(target), known.stays) << known.text;
    EXPECT_EQ(MayStayHere(target), known.may_stay) << known.text;
  }
}

}  // namespace
}  // namespace counterweight::client
