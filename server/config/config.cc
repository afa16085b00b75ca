#include "server/config/config.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "server/base/config_error.h"
#include "server/engine/available_cpus.h"
#include "spdlog/fmt/fmt.h"
#include "spdlog/fmt/ranges.h"

namespace counterweight::server {
namespace {

// Smallest accepted stream and unary timeout, seconds.
constexpr double kMinTimeout = 0.01;

std::string NotLocal(std::string_view flag, const ListenAddress& address,
                     std::string_view why, std::string_view instead) {
  return fmt::format(
      "--{}={} can be reached from other machines, and {}; use {}, or pass "
      "--allow_insecure",
      flag, address.ToString(), why, instead);
}

// Returns the first error of the addresses that other machines reach.
std::string ValidateReach(const Config& config) {
  if (config.allow_insecure) return "";
  for (const ListenAddress& address : config.listen) {
    if (IsLocal(address) || !config.tls_certificate.empty()) continue;
    if (config.tokens.empty()) {
      return NotLocal("listen", address,
                      "without --tls_certificate nothing is encrypted and no "
                      "client has to say who it is",
                      "--tls_certificate, a loopback address or a Unix socket");
    }
    return NotLocal("listen", address,
                    "without --tls_certificate tokens can be read on the way",
                    "TLS, a loopback address or a Unix socket");
  }
  if (config.metrics_listen && !IsLocal(*config.metrics_listen) &&
      !HasMetricsTls(config)) {
    return NotLocal("metrics_listen", *config.metrics_listen,
                    "metrics, and the tokens of those who ask for them, are "
                    "not encrypted",
                    "--tls_certificate with --metrics_tls, or a loopback "
                    "address");
  }
  return "";
}

std::string ValidateTls(const Config& config) {
  if (config.tls_certificate.empty() != config.tls_key.empty()) {
    return "--tls_certificate and --tls_key need each other";
  }
  if (config.tls_certificate.empty() && !config.tls_client_ca.empty()) {
    return "--tls_client_ca needs --tls_certificate and --tls_key";
  }
  if (config.tls_client_ca.empty() && !config.tls_client_names.empty()) {
    return "--tls_client_names needs --tls_client_ca, without which clients "
           "have no certificate";
  }
  return "";
}

}  // namespace

std::string ToString(const DeviceChoice& choice) {
  return choice.all ? "all" : fmt::format("{}", fmt::join(choice.indices, ","));
}

std::string Validate(const Config& config) {
  for (std::string wrong : {ValidateTls(config), ValidateReach(config)}) {
    if (!wrong.empty()) return wrong;
  }
  if (config.metrics_listen && config.metrics_listen->IsUnix()) {
    return "--metrics_listen must be host:port: Prometheus scrapes over TCP";
  }
  if (config.devices.is_given && config.backend == Backend::kCpu) {
    return fmt::format("--devices={} and --backend=cpu contradict each other",
                       ToString(config.devices));
  }
  if (config.max_runs_per_client > config.max_runs) {
    return fmt::format("--max_runs_per_client={} is larger than --max_runs={}",
                       config.max_runs_per_client, config.max_runs);
  }
  // A message is counted twice: as received and as parsed.
  if (config.max_bytes_in_flight < 2 * config.max_message_bytes) {
    return fmt::format(
        "--max_bytes_in_flight={} is smaller than twice "
        "--max_message_bytes={}: the largest message could never be admitted",
        config.max_bytes_in_flight, config.max_message_bytes);
  }
  for (const auto& [flag, seconds] :
       {std::pair("stream_timeout", config.stream_timeout_s),
        std::pair("unary_timeout", config.unary_timeout_s)}) {
    if (seconds < kMinTimeout) {
      return fmt::format("--{}={} is less than {} seconds", flag, seconds,
                         kMinTimeout);
    }
  }
  if (!config.shared_memory_socket.empty()) {
    const absl::StatusOr<ListenAddress> address =
        ParseListenAddress("unix:" + config.shared_memory_socket);
    if (!address.ok()) {
      return fmt::format("--shared_memory_socket={}: {}",
                         config.shared_memory_socket,
                         MessageOf(address.status()));
    }
  }
  return "";
}

bool HasMetricsTls(const Config& config) {
  return config.metrics_tls && !config.tls_certificate.empty();
}

int NumThreads(const Config& config) {
  if (config.threads > 0) return static_cast<int>(config.threads);
  return AvailableCpus();
}

int64_t TransportBytes(const Config& config) {
  constexpr int64_t kBase = int64_t{448} << 20;
  return std::max(kBase + config.max_bytes_in_flight * 3 / 10,
                  kBase + config.max_message_bytes);
}

}  // namespace counterweight::server
