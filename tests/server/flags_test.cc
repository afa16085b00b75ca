#include "server/config/flags.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/config/command_line.h"

namespace counterweight::server {
namespace {

TEST(Flags, NothingIsTheDefaults) {
  const CommandLine line = ParseFlags({});
  EXPECT_EQ(line.error, "");
  ASSERT_EQ(line.config.listen.size(), 1U);
  EXPECT_EQ(line.config.listen[0].ToString(), "127.0.0.1:50051");
  ASSERT_TRUE(line.config.metrics_listen.has_value());
  EXPECT_EQ(line.config.metrics_listen->ToString(), "127.0.0.1:9464");
}

TEST(Flags, ListenCollects) {
  const CommandLine line = ParseFlags(
      {"--listen=127.0.0.1:1,unix:/run/a.sock", "--listen", "[::1]:2"});
  EXPECT_EQ(line.error, "");
  ASSERT_EQ(line.config.listen.size(), 3U);
  EXPECT_EQ(line.config.listen[0].ToString(), "127.0.0.1:1");
  EXPECT_EQ(line.config.listen[1].ToString(), "unix:/run/a.sock");
  EXPECT_EQ(line.config.listen[2].ToString(), "[::1]:2");
}

TEST(Flags, OfConnectionsHaveTheirBounds) {
  const CommandLine line = ParseFlags(
      {"--max_connection_age=1", "--max_streams_per_connection=65536"});
  EXPECT_EQ(line.error, "");
  EXPECT_EQ(line.config.max_connection_age_s, 1);
  EXPECT_EQ(line.config.max_streams_per_connection, 65536);
  for (const char* const wrong :
       {"--max_connection_age=0.9", "--max_connection_age=86401",
        "--max_streams_per_connection=0"}) {
    EXPECT_NE(ParseFlags({wrong}).error, "") << wrong;
  }
}

TEST(Flags, SetEveryField) {
  const CommandLine line = ParseFlags({"--metrics_listen=",
                                       "--allow_insecure",
                                       "--metrics_hosts=a.example,B-2.example",
                                       "--page=false",
                                       "--backend=cuda",
                                       "--devices=2,0",
                                       "--threads=3",
                                       "--max_message_bytes=2048",
                                       "--max_tokens=5",
                                       "--max_sequences=6",
                                       "--max_requests_in_flight=7",
                                       "--max_bytes_in_flight=4096",
                                       "--max_queued_requests=10",
                                       "--max_queue_seconds=11",
                                       "--stream_timeout=12",
                                       "--min_stream_bytes_per_second=13",
                                       "--shared_memory_socket=/run/shm.sock",
                                       "--max_shared_memory_bytes=8192",
                                       "--max_runs=9",
                                       "--max_runs_per_client=8",
                                       "--device_memory_bytes=1048576",
                                       "--drain_delay=0.5",
                                       "--drain_timeout=1.5",
                                       "--log_level=error"});
  EXPECT_EQ(line.error, "");
  const Config& config = line.config;
  EXPECT_FALSE(config.metrics_listen.has_value());
  EXPECT_TRUE(config.allow_insecure);
  EXPECT_EQ(config.metrics_hosts,
            (std::vector<std::string>{"a.example", "B-2.example"}));
  EXPECT_FALSE(config.page);
  EXPECT_EQ(config.backend, Backend::kCuda);
  EXPECT_TRUE(config.devices.is_given);
  EXPECT_EQ(config.devices.indices, (std::vector<int>{2, 0}));
  EXPECT_EQ(config.threads, 3);
  EXPECT_EQ(config.max_message_bytes, 2048);
  EXPECT_EQ(config.max_tokens, 5);
  EXPECT_EQ(config.max_sequences, 6);
  EXPECT_EQ(config.max_requests_in_flight, 7);
  EXPECT_EQ(config.max_bytes_in_flight, 4096);
  EXPECT_EQ(config.max_queued_requests, 10);
  EXPECT_EQ(config.max_queue_seconds, 11);
  EXPECT_EQ(config.stream_timeout_s, 12);
  EXPECT_EQ(config.min_stream_bytes_per_second, 13);
  EXPECT_EQ(config.shared_memory_socket, "/run/shm.sock");
  EXPECT_EQ(config.max_shared_memory_bytes, 8192);
  EXPECT_EQ(config.max_runs, 9);
  EXPECT_EQ(config.max_runs_per_client, 8);
  EXPECT_EQ(config.device_memory_bytes, 1048576);
  EXPECT_EQ(config.drain_delay_s, 0.5);
  EXPECT_EQ(config.drain_timeout_s, 1.5);
  EXPECT_EQ(config.log_level, "error");
}

TEST(Flags, ErrorsNameTheFlag) {
  const std::pair<const char*, const char*> cases[] = {
      {"--bogus=1", "--bogus"},
      {"positional", "positional"},
      {"--threads", "--threads"},
      {"--threads=", "--threads"},
      {"--threads=-1", "--threads=-1"},
      {"--threads=2x", "--threads=2x"},
      {"--threads=02", "--threads=02"},
      {"--max_tokens=-01", "--max_tokens=-01"},
      {"--drain_delay=01.5", "--drain_delay=01.5"},
      {"--metrics_hosts=a,", "--metrics_hosts=a,"},
      {"--metrics_hosts=a:9464", "--metrics_hosts=a:9464"},
      {"--metrics_hosts=http://a", "--metrics_hosts=http://a"},
      {"--max_message_bytes=2147483648", "--max_message_bytes"},
      {"--max_tokens=0", "--max_tokens"},
      {"--max_tokens=99999999999999999999", "--max_tokens"},
      {"--drain_delay=-1", "--drain_delay"},
      {"--drain_delay=nan", "--drain_delay"},
      {"--drain_timeout=inf", "--drain_timeout"},
      {"--backend=gpu", "--backend=gpu"},
      {"--devices=", "--devices="},
      {"--devices=0,", "--devices=0,"},
      {"--devices=-1", "--devices=-1"},
      {"--devices=0,all", "--devices=0,all"},
      {"--devices=gpu", "--devices=gpu"},
      {"--devices=0,1,0", "--devices=0,1,0: names device 0 twice"},
      {"--devices=99999999999", "--devices=99999999999"},
      {"--log_level=loud", "--log_level=loud"},
      {"--allow_insecure=perhaps", "--allow_insecure"},
      {"--page=off", "--page=off: must be true or false"},
      {"--listen=", "--listen"},
      {"--listen=127.0.0.1:1,", "--listen"},
      {"--listen=0.0.0.0:1", "--listen=0.0.0.0:1"},
      {"--metrics_listen=9464", "--metrics_listen=9464"},
      {"--listen=example.com:1", "--listen=example.com:1"},
      {"--metrics_listen=127.1:1", "--metrics_listen=127.1:1"},
  };
  for (const auto& [argument, named] : cases) {
    const std::string error = ParseFlags({argument}).error;
    EXPECT_NE(error.find(named), std::string::npos)
        << argument << " -> " << error;
  }
}

TEST(Flags, DevicesAreTheFirstOrThoseNamedOrAll) {
  const DeviceChoice first = ParseFlags({}).config.devices;
  EXPECT_FALSE(first.is_given);
  EXPECT_EQ(ToString(first), "0");
  const DeviceChoice all = ParseFlags({"--devices=all"}).config.devices;
  EXPECT_TRUE(all.is_given);
  EXPECT_TRUE(all.all);
  EXPECT_EQ(ToString(all), "all");
  // The last of several is used.
  const DeviceChoice last =
      ParseFlags({"--devices=all", "--devices=3"}).config.devices;
  EXPECT_FALSE(last.all);
  EXPECT_EQ(ToString(last), "3");
}

TEST(Flags, HelpWinsOverValidation) {
  const CommandLine line = ParseFlags({"--listen=0.0.0.0:1", "--help"});
  EXPECT_TRUE(line.help);
  EXPECT_TRUE(ParseFlags({"-h"}).help);
  EXPECT_EQ(line.error, "");
  EXPECT_TRUE(ParseFlags({"--version"}).version);
}

TEST(Flags, HelpAndLogHaveEveryFlag) {
  const std::string help = FlagsHelp();
  const nlohmann::ordered_json json = ToJson(Config{});
  for (const char* name : {"listen",
                           "metrics_listen",
                           "allow_insecure",
                           "page",
                           "backend",
                           "devices",
                           "threads",
                           "max_message_bytes",
                           "max_tokens",
                           "max_sequences",
                           "max_requests_in_flight",
                           "max_bytes_in_flight",
                           "max_queued_requests",
                           "max_queue_seconds",
                           "stream_timeout",
                           "min_stream_bytes_per_second",
                           "shared_memory_socket",
                           "max_shared_memory_bytes",
                           "device_memory_bytes",
                           "max_runs",
                           "max_runs_per_client",
                           "drift_gauge_window",
                           "drain_delay",
                           "drain_timeout",
                           "log_level"}) {
    EXPECT_NE(help.find(std::string("--") + name + " (default: "),
              std::string::npos)
        << name;
    EXPECT_TRUE(json.contains(name)) << name;
  }
}

}  // namespace
}  // namespace counterweight::server
