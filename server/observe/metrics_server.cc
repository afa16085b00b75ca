#include "server/observe/metrics_server.h"

namespace counterweight::server {
namespace {

// A connection has a thread until it is answered. One more accepts.
constexpr int kConnections = kMetricsServerThreads - 1;

// For the whole request to arrive, and for each part of the answer to leave. A
// scraper sends its request in one piece: only a connection that is stuck needs
// longer, and scrapes wait for its thread.
constexpr int kTimeoutMilliseconds = 2000;

}  // namespace

std::vector<std::string> MetricsServerOptions(const std::string& address) {
  return {
      // clang-format off
      "listening_ports", address,
      "num_threads", std::to_string(kConnections),
      "request_timeout_ms", std::to_string(kTimeoutMilliseconds),
      // An idle connection would keep its thread.
      "enable_keep_alive", "no",
      // There are no files; the library would list them by default.
      "enable_directory_listing", "no",
      // clang-format on
  };
}

}  // namespace counterweight::server
