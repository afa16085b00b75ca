// The options of gRPC's connections, each from its own flag.
#include "server/listen/connection_options.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

class ReadableBuilder : public grpc::ServerBuilder {
 public:
  std::map<std::string, int> Numbers() {
    grpc::ChannelArguments arguments;
    for (grpc::ServerBuilderOption* const each : options()) {
      each->UpdateArguments(&arguments);
    }
    const grpc_channel_args all = arguments.c_channel_args();
    std::map<std::string, int> numbers;
    for (size_t i = 0; i < all.num_args; ++i) {
      const grpc_arg& each = all.args[i];
      if (each.type == GRPC_ARG_INTEGER) {
        EXPECT_TRUE(numbers.emplace(each.key, each.value.integer).second)
            << each.key;
      }
    }
    return numbers;
  }
};

std::map<std::string, int> NumbersOf(const Config& config) {
  ReadableBuilder builder;
  SetConnectionOptions(config, &builder);
  return builder.Numbers();
}

// Every value is another one.
TEST(ConnectionOptions, AreThoseOfTheFlags) {
  Config config;
  config.max_connection_age_s = 1.5;
  config.max_connection_age_grace_s = 2.25;
  config.max_streams_per_connection = 3;
  config.max_metadata_bytes = 4096;
  config.keepalive_interval_s = 5.125;
  config.keepalive_timeout_s = 6.75;
  EXPECT_EQ(NumbersOf(config),
            (std::map<std::string, int>{
                {"grpc.server_handshake_timeout_ms", 10'000},
                {"grpc.max_connection_age_ms", 1'500},
                {"grpc.max_connection_age_grace_ms", 2'250},
                {"grpc.max_concurrent_streams", 3},
                {"grpc.max_metadata_size", 4096},
                {"grpc.absolute_max_metadata_size", 4096},
                {"grpc.keepalive_time_ms", 5'125},
                {"grpc.keepalive_timeout_ms", 6'750},
                {"grpc.http2.ping_timeout_ms", 6'750},
                {"grpc.keepalive_permit_without_calls", 1},
                {"grpc.http2.max_pings_without_data", 0},
                {"grpc.http2.min_ping_interval_without_data_ms", 1'000},
                {"grpc.http2.max_ping_strikes", 2}}));
}

// As server/README.md has them: an hour, ten minutes, a hundred calls.
TEST(ConnectionOptions, HaveTheirDefaults) {
  std::map<std::string, int> numbers = NumbersOf(Config());
  EXPECT_EQ(numbers["grpc.max_connection_age_ms"], 3'600'000);
  EXPECT_EQ(numbers["grpc.max_connection_age_grace_ms"], 600'000);
  EXPECT_EQ(numbers["grpc.max_concurrent_streams"], 100);
  EXPECT_EQ(numbers["grpc.max_metadata_size"], 8192);
  EXPECT_EQ(numbers["grpc.keepalive_time_ms"], 60'000);
  EXPECT_EQ(numbers["grpc.keepalive_timeout_ms"], 20'000);
}

}  // namespace
}  // namespace counterweight::server
