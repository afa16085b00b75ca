// The environment of OpenTelemetry.
#include "server/config/otlp_options.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

OtlpOptions Read(const std::vector<std::string>& environment,
                 std::string* error) {
  OtlpOptions options;
  *error = ReadOtlpOptions(environment, &options);
  return options;
}

TEST(OtlpOptions, WithoutAnEndpointNothingIsRead) {
  std::string error;
  const OtlpOptions options =
      Read({"OTEL_EXPORTER_OTLP_HEADERS=broken", "OTEL_SDK_DISABLED=true",
            "OTEL_EXPORTER_OTLP_ENDPOINT="},
           &error);
  EXPECT_EQ(error, "");
  EXPECT_EQ(options.target, "");
  EXPECT_EQ(options.why_off, "");
}

TEST(OtlpOptions, EndpointsAreUrlsWithAHost) {
  const auto read = [](const std::string& url) {
    std::string error;
    const OtlpOptions options =
        Read({"OTEL_EXPORTER_OTLP_ENDPOINT=" + url}, &error);
    return error.empty() ? options.target + (options.has_tls ? " tls" : "")
                         : error;
  };
  EXPECT_EQ(read("http://collector:4317"), "collector:4317");
  EXPECT_EQ(read("http://collector:4317/"), "collector:4317");
  EXPECT_EQ(read("http://collector"), "collector:4317");
  EXPECT_EQ(read("https://collector:443"), "collector:443 tls");
  EXPECT_EQ(read("http://[::1]:4317"), "[::1]:4317");
  EXPECT_EQ(read("http://[::1]"), "[::1]:4317");
  for (const char* const wrong :
       {"collector:4317", "ftp://collector", "http://", "http://:4317",
        "http://collector:0", "http://collector:99999", "http://collector:x",
        "http://collector/v1/traces", "http://user@collector"}) {
    EXPECT_THAT(read(wrong), HasSubstr("OTEL_EXPORTER_OTLP_ENDPOINT="))
        << wrong;
  }
}

TEST(OtlpOptions, TheEndpointOfTracesWins) {
  std::string error;
  const OtlpOptions options =
      Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://b"},
           &error);
  EXPECT_EQ(options.target, "b:4317");
}

TEST(OtlpOptions, TheDeadlineIsInMilliseconds) {
  const auto read = [](const std::vector<std::string>& variables,
                       std::string* error) {
    std::vector<std::string> environment = variables;
    environment.emplace_back("OTEL_EXPORTER_OTLP_ENDPOINT=http://a");
    return Read(environment, error).deadline.count();
  };
  std::string error;
  EXPECT_EQ(read({}, &error), 2000);
  EXPECT_EQ(read({"OTEL_EXPORTER_OTLP_TIMEOUT=1"}, &error), 1);
  EXPECT_EQ(read({"OTEL_EXPORTER_OTLP_TIMEOUT=3600000"}, &error), 3600000);
  EXPECT_EQ(read({"OTEL_EXPORTER_OTLP_TIMEOUT=30",
                  "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=40"},
                 &error),
            40);
  EXPECT_EQ(error, "");
  for (const char* const wrong : {"0", "-1", "3600001", "1s", "x", "1.5"}) {
    const std::string given = "OTEL_EXPORTER_OTLP_TIMEOUT=";
    read({given + wrong}, &error);
    EXPECT_THAT(error, HasSubstr(given + wrong)) << wrong;
  }
}

TEST(OtlpOptions, HeadersAndResourcesArePercentEncodedPairs) {
  std::string error;
  const OtlpOptions options =
      Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a",
            "OTEL_EXPORTER_OTLP_HEADERS=Api-Key=a%20b, x=1=2",
            "OTEL_RESOURCE_ATTRIBUTES=service.name=x,k8s.pod.name=p%2c1",
            "OTEL_SERVICE_NAME=trainer"},
           &error);
  EXPECT_EQ(error, "");
  EXPECT_THAT(options.headers,
              ElementsAre(Pair("api-key", "a b"), Pair("x", "1=2")));
  EXPECT_THAT(options.resource, ElementsAre(Pair("k8s.pod.name", "p,1"),
                                            Pair("service.name", "trainer")));
  for (const char* const wrong :
       {"secret", "=secret", "a b=secret", "grpc-timeout=secret",
        "x-bin=secret", "x=secret%0a"}) {
    Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a",
          std::string("OTEL_EXPORTER_OTLP_HEADERS=") + wrong},
         &error);
    EXPECT_THAT(error, HasSubstr("OTEL_EXPORTER_OTLP_HEADERS")) << wrong;
  }
}

TEST(OtlpOptions, HeadersHaveTheCharactersOfMetadata) {
  const auto is_taken = [](const std::string& headers) {
    std::string error;
    Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a",
          "OTEL_EXPORTER_OTLP_HEADERS=" + headers},
         &error);
    return error.empty();
  };
  constexpr std::string_view kOthers = "-_.";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto unsigned_c = static_cast<unsigned char>(c);
    EXPECT_EQ(is_taken(fmt::format("a=x%{:02x}x", byte)),
              absl::ascii_isprint(unsigned_c))
        << byte;
    if (c == ',' || c == '=') continue;
    EXPECT_EQ(
        is_taken(std::string("a") + c + "b=x"),
        absl::ascii_isalnum(unsigned_c) || kOthers.find(c) != kOthers.npos)
        << byte;
  }
}

TEST(OtlpOptions, OnlyTwoHexadecimalDigitsAreDecoded) {
  const auto value = [](const std::string& text) {
    std::string error;
    const OtlpOptions options =
        Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a",
              "OTEL_EXPORTER_OTLP_HEADERS= x = " + text + "  ,"},
             &error);
    EXPECT_EQ(error, "");
    return options.headers.at(0).second;
  };
  EXPECT_EQ(value("%41%4a%4F"), "AJO");
  for (const char* const same :
       {"%", "%4", "a%", "%4g", "%g4", "%/1", "%1/", "%:1", "%@1", "%1`"}) {
    EXPECT_EQ(value(same), same);
  }
}

TEST(OtlpOptions, NoProxyStandsBeforeThisMachineOrReadsHeaders) {
  const std::string token = "OTEL_EXPORTER_OTLP_HEADERS=authorization=x";
  const auto may_use_proxy = [](const std::string& url,
                                const std::string& headers) {
    std::string error;
    const bool may = MayUseProxy(
        Read({"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, headers}, &error));
    EXPECT_EQ(error, "") << url;
    return may;
  };
  for (const char* const here :
       {"localhost:4317", "LocalHost", "localhost.:4317", "otel.localhost",
        "127.0.0.1:4317", "127.1.2.3", "[::1]:4317", "[::1]", "0.0.0.0:4317",
        "[::]:4317", "[::ffff:127.0.0.1]:4317"}) {
    for (const char* const scheme : {"http://", "https://"}) {
      EXPECT_FALSE(may_use_proxy(scheme + std::string(here), "")) << here;
      EXPECT_FALSE(may_use_proxy(scheme + std::string(here), token)) << here;
    }
  }
  for (const char* const elsewhere :
       {"collector:4317", "10.0.0.1:4317", "[fd00::1]", "localhost.example",
        "127.0.0.1.example"}) {
    EXPECT_TRUE(may_use_proxy(std::string("http://") + elsewhere, ""));
    EXPECT_TRUE(may_use_proxy(std::string("https://") + elsewhere, token));
    EXPECT_FALSE(may_use_proxy(std::string("http://") + elsewhere, token));
  }
}

TEST(OtlpOptions, OtherVariablesTurnTracesOffWithAReason) {
  for (const char* const off :
       {"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_SDK_DISABLED=true",
        "OTEL_TRACES_EXPORTER=none"}) {
    std::string error;
    const OtlpOptions options =
        Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a", off}, &error);
    EXPECT_EQ(error, "");
    EXPECT_EQ(options.target, "");
    EXPECT_THAT(options.why_off, HasSubstr(off));
  }
}

TEST(OtlpOptions, TheProtocolOfTracesWins) {
  const std::string all = "OTEL_EXPORTER_OTLP_PROTOCOL=";
  const std::string traces = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=";
  const auto why_off = [&](const std::string& of_all,
                           const std::string& of_traces) {
    std::string error;
    return Read({"OTEL_EXPORTER_OTLP_ENDPOINT=http://a", all + of_all,
                 traces + of_traces},
                &error)
        .why_off;
  };
  EXPECT_EQ(why_off("http/protobuf", "grpc"), "");
  EXPECT_THAT(why_off("grpc", "http/json"), HasSubstr(traces + "http/json"));
  EXPECT_THAT(why_off("http/protobuf", ""), HasSubstr(all + "http/protobuf"));
}

}  // namespace
}  // namespace counterweight::server
