#include "server/config/config.h"

#include <string>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

TEST(Config, DefaultsAreValid) { EXPECT_EQ(Validate(Config{}), ""); }

TEST(Config, OtherMachinesNeedConsent) {
  Config config;
  config.listen.push_back({.host = "0.0.0.0", .port = 50051, .path = ""});
  EXPECT_NE(Validate(config).find("--listen=0.0.0.0:50051"), std::string::npos);
  EXPECT_NE(Validate(config).find("--allow_insecure"), std::string::npos);
  config.allow_insecure = true;
  EXPECT_EQ(Validate(config), "");
}

TEST(Config, MetricsToo) {
  Config config;
  config.metrics_listen = {.host = "0.0.0.0", .port = 9464, .path = ""};
  EXPECT_NE(Validate(config).find("--metrics_listen=0.0.0.0:9464"),
            std::string::npos);
  config.allow_insecure = true;
  EXPECT_EQ(Validate(config), "");
}

TEST(Config, EncryptedMetricsMayLeaveTheMachine) {
  Config config;
  config.metrics_listen = {.host = "0.0.0.0", .port = 9464, .path = ""};
  config.tls_certificate = "tls.crt";
  config.tls_key = "tls.key";
  EXPECT_EQ(Validate(config), "");
  config.metrics_tls = false;
  EXPECT_NE(Validate(config).find("not encrypted"), std::string::npos);
  config.allow_insecure = true;
  EXPECT_EQ(Validate(config), "");
}

TEST(Config, PrometheusCannotScrapeASocket) {
  Config config;
  config.metrics_listen = {.host = "", .port = 0, .path = "/run/cw.sock"};
  EXPECT_NE(Validate(config).find("--metrics_listen"), std::string::npos);
}

TEST(Config, TheLargestMessageFits) {
  Config config;
  config.max_bytes_in_flight = 2 * config.max_message_bytes - 1;
  EXPECT_NE(Validate(config).find("--max_bytes_in_flight"), std::string::npos);
  config.max_bytes_in_flight = 2 * config.max_message_bytes;
  EXPECT_EQ(Validate(config), "");
}

TEST(Config, TheCpuHasNoDevices) {
  Config config;
  config.backend = Backend::kCpu;
  EXPECT_EQ(Validate(config), "");
  config.devices = {.is_given = true, .all = false, .indices = {1}};
  EXPECT_NE(Validate(config).find("--devices=1"), std::string::npos);
  config.backend = Backend::kAuto;
  EXPECT_EQ(Validate(config), "");
}

TEST(Config, AStreamHasSomeTime) {
  Config config;
  config.stream_timeout_s = 0;
  EXPECT_NE(Validate(config).find("--stream_timeout=0"), std::string::npos);
}

TEST(Config, ASocketsPathFits) {
  Config config;
  config.shared_memory_socket = std::string(200, 'x');
  EXPECT_NE(Validate(config).find("--shared_memory_socket="),
            std::string::npos);
}

TEST(Config, OneClientsRunsFitIntoAll) {
  Config config;
  config.max_runs_per_client = config.max_runs + 1;
  EXPECT_NE(Validate(config).find("--max_runs_per_client"), std::string::npos);
}

TEST(Config, ZeroThreadsAreTheHardwares) {
  Config config;
  EXPECT_GE(NumThreads(config), 1);
  config.threads = 3;
  EXPECT_EQ(NumThreads(config), 3);
}

}  // namespace
}  // namespace counterweight::server
