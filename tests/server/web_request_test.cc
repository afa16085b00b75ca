#include "server/observe/web_request.h"

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

TEST(WebRequest, IsReadAsSent) {
  const auto request = ParseWebRequest(
      "GET /page.json?run=a%20b&x HTTP/1.1\r\nHost: one\r\n"
      "authorization:  Bearer abc \r\nAccept-Encoding: gzip, br\r\n\r\n");
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->method, "GET");
  EXPECT_EQ(request->path, "/page.json");
  EXPECT_EQ(request->query, "run=a%20b&x");
  EXPECT_EQ(request->authorization, "Bearer abc");
  EXPECT_EQ(request->accept_encoding, "gzip, br");
  EXPECT_EQ(request->host, "one");
  EXPECT_FALSE(request->is_tls);
}

TEST(WebRequest, MayNameTheWholeAddress) {
  const auto whole = ParseWebRequest(
      "GET http://one:9464/metrics HTTP/1.1\r\nHost: two\r\n"
      "\r\n");
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->path, "/metrics");
  EXPECT_EQ(whole->host, "one:9464");
  const auto query = ParseWebRequest("GET http://one?a/b HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(query.has_value());
  EXPECT_EQ(query->host, "one");
  const auto root = ParseWebRequest("HEAD https://one HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(root.has_value());
  EXPECT_EQ(root->path, "/");
}

TEST(WebRequest, WhatIsNoneIsRefused) {
  for (const std::string& head : {
           std::string("\r\n\r\n"),
           std::string("GET\r\n\r\n"),
           std::string("GET /\r\n\r\n"),
           std::string("GET metrics HTTP/1.1\r\n\r\n"),
           std::string("GET / HTTP/2.0\r\n\r\n"),
           std::string("GET / HTTP/1.1 x\r\n\r\n"),
           std::string("GET  / HTTP/1.1\r\n\r\n"),
           std::string("GET /\0 HTTP/1.1\r\n\r\n", 19),
           std::string("GET / HTTP/1.1\r\nno colon\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\n: no name\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nAuthorization : x\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a\r\n goes: on\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a\nb: c\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nAuthorization: a\r\n"
                       "Authorization: b\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nAuthorization:\r\n"
                       "authorization: b\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost:\r\nHost: a\r\n\r\n"),
       }) {
    EXPECT_FALSE(ParseWebRequest(head).has_value()) << head;
  }
}

TEST(WebRequest, AHostOfAnotherSiteIsNotOurs) {
  const std::vector<std::string> names = {"metrics.example", "Cw.Example"};
  for (const char* const ours :
       {"127.0.0.1", "127.0.0.1:9464", "10.1.2.3:80", "[::1]", "[::1]:9464",
        "[fd00::7]:1", "localhost", "LOCALHOST:9464", "counterweight:9464",
        "node_7", "metrics.example", "METRICS.example:9464",
        "cw.example:", "cw.example"}) {
    EXPECT_TRUE(IsOwnHost(ours, names)) << ours;
  }
  for (const char* const others : {"attacker.example",
                                   "attacker.example:9464",
                                   "metrics.example.evil",
                                   "evil.metrics.example",
                                   "metrics.example.",
                                   "metrics.example:80:80",
                                   "127.0.0.1.evil.example",
                                   "localhost.evil",
                                   "127.1",
                                   "1.2.3.4.5",
                                   "[::1].evil",
                                   "[evil]",
                                   "::1",
                                   "a b",
                                   "a@localhost",
                                   "evil/localhost",
                                   ":9464",
                                   "localhost:9464x",
                                   "\xc3\xa4",
                                   ".",
                                   "a.",
                                   ""}) {
    EXPECT_FALSE(IsOwnHost(others, names)) << others;
  }
}

TEST(WebRequest, OneLabelHasTheCharactersOfHostNames) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool is_allowed =
        absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
        c == '_';
    // ':' begins a port, which may be empty.
    EXPECT_EQ(IsOwnHost(std::string("a") + c, {}), is_allowed || c == ':')
        << byte;
  }
}

TEST(WebRequest, HeadsHaveNoControlCharacters) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool is_text = (byte >= ' ' && byte != 0x7f) || c == '\t';
    EXPECT_EQ(
        ParseWebRequest(std::string("GET / HTTP/1.1\r\nX: a") + c + "b\r\n\r\n")
            .has_value(),
        is_text)
        << byte;
  }
}

// RFC 9110, section 12.5.3.
TEST(WebRequest, GzipMayBeRefused) {
  for (const char* const taken :
       {"gzip", "GZIP", "br, gzip", "gzip, deflate, br", "deflate,gzip;q=1.0",
        "gzip;q=0.5", "gzip; q=0.001", "gzip;q=1", " gzip ", "br;q=0, gzip",
        "gzip;q=0.5, br;q=0"}) {
    EXPECT_TRUE(TakesGzip(taken)) << taken;
  }
  for (const char* const refused :
       {"", "identity", "br", "deflate", "gzip;q=0", "gzip; q=0", "gzip ;Q=0.0",
        "gzip;q=0.000, br", "br, gzip;q=0", "notgzip", "gzipped", "x;gzip"}) {
    EXPECT_FALSE(TakesGzip(refused)) << refused;
  }
}

// Schemes have no case (RFC 9110, section 11.1).
TEST(WebRequest, ATokenIsAPasswordToo) {
  // base64 of "user:secret".
  constexpr const char* kEncoded = "dXNlcjpzZWNyZXQ=";
  for (const std::string scheme : {"Basic ", "basic ", "BASIC "}) {
    EXPECT_EQ(BearerOf(scheme + kEncoded), "Bearer secret") << scheme;
  }
  // The last group may have one, two or three bytes.
  EXPECT_EQ(BearerOf("Basic dTphYg=="), "Bearer ab");
  EXPECT_EQ(BearerOf("Basic dTphYmM="), "Bearer abc");
  EXPECT_EQ(BearerOf("Basic dTphYmNk"), "Bearer abcd");
  EXPECT_EQ(BearerOf("Basic OmE6Yg=="), "Bearer a:b") << "no name, a colon";
  EXPECT_EQ(BearerOf("Basic dTo="), "Bearer ") << "no password";
  for (const char* const none : {"Basic ?", "Basic dX", "Basic dXN$"}) {
    EXPECT_EQ(BearerOf(none), "") << none;
  }
  for (const char* const other :
       {"", "Bearer secret", "bearer x", "Basic", "Digest dXNlcjpzZWNyZXQ="}) {
    EXPECT_EQ(BearerOf(other), other);
  }
}

TEST(WebRequest, ItsFieldsHaveNoCaseAndNoOrder) {
  const auto request = ParseWebRequest(
      "HEAD /metrics? HTTP/1.0\r\nACCEPT-ENCODING:gzip\r\nX:\r\nHOST:\ta:1 \t"
      "\r\nAUTHORIZATION:Basic x\r\n\r\nHost: of the body\r\n");
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->method, "HEAD");
  EXPECT_EQ(request->path, "/metrics");
  EXPECT_EQ(request->query, "");
  EXPECT_EQ(request->accept_encoding, "gzip");
  EXPECT_EQ(request->host, "a:1");
  EXPECT_EQ(request->authorization, "Basic x");
}

TEST(WebRequest, QueriesAreDecoded) {
  EXPECT_EQ(QueryValue("run=a%20b+c%2F", "run"), "a b c/");
  EXPECT_EQ(QueryValue("x=1&run=2&run=3", "run"), "2");
  EXPECT_EQ(QueryValue("run=100%&x=1", "run"), "100%");
  EXPECT_EQ(QueryValue("run=%4", "run"), "%4");
  EXPECT_EQ(QueryValue("run=%41", "run"), "A");
  EXPECT_EQ(QueryValue("run=%zz", "run"), "%zz");
  EXPECT_EQ(QueryValue("runs=1", "run"), "");
  EXPECT_EQ(QueryValue("run", "run"), "");
  EXPECT_EQ(QueryValue("", "run"), "");
}

}  // namespace
}  // namespace counterweight::server
