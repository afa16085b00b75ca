// The server's configuration.
#ifndef COUNTERWEIGHT_SERVER_CONFIG_CONFIG_H_
#define COUNTERWEIGHT_SERVER_CONFIG_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/base/listen_address.h"
#include "server/config/otlp_options.h"

namespace counterweight::server {

enum class Backend : uint8_t { kAuto, kCpu, kCuda };

// Selects the CUDA devices that compute.
struct DeviceChoice {
  bool is_given = false;  // by a flag, a variable or the file
  bool all = false;
  // CUDA's device numbers, each once; unused if `all`.
  std::vector<int> indices = {0};
};

// Formats the value as the flag takes it: "all", "0,2".
std::string ToString(const DeviceChoice& choice);

// All settings of a server; server/config/flags.cc documents each field.
struct Config {
  std::vector<ListenAddress> listen = {
      {.host = "127.0.0.1", .port = 50051, .path = ""}};
  std::optional<ListenAddress> metrics_listen =
      ListenAddress{.host = "127.0.0.1", .port = 9464, .path = ""};
  // Host names that clients without TLS may use there.
  std::vector<std::string> metrics_hosts;
  bool metrics_tls = true;  // where there is a certificate
  bool page = true;
  bool allow_insecure = false;

  // TLS over TCP; empty: none. See access/access.h.
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_client_ca;
  std::vector<std::string> tls_client_names;
  std::string tokens;  // a file; empty: none are required

  Backend backend = Backend::kAuto;
  DeviceChoice devices;
  int64_t threads = 0;  // 0: AvailableCpus()

  int64_t max_message_bytes = int64_t{256} << 20;
  int64_t max_tokens = int64_t{64} << 20;
  int64_t max_sequences = int64_t{1} << 20;
  int64_t max_connections = 4096;
  double max_connection_age_s = 3600.0;
  int64_t max_streams_per_connection = 100;
  int64_t max_requests_in_flight = 64;
  int64_t max_bytes_in_flight = int64_t{2} << 30;
  int64_t max_queued_requests = 256;
  double max_queue_seconds = 10.0;
  double stream_timeout_s = 10.0;
  double unary_timeout_s = 20.0;
  int64_t min_stream_bytes_per_second = int64_t{1} << 20;

  // The mode of the files of Unix sockets.
  uint32_t socket_mode = 0600;
  std::string shared_memory_socket;  // empty: no shared memory
  // Users who may share memory besides the server's own.
  std::vector<uint32_t> shared_memory_uids;
  int64_t max_shared_memory_bytes = int64_t{1} << 30;

  // The most that batches take of each GPU's memory; 0: nine tenths of what is
  // free at the start.
  int64_t device_memory_bytes = 0;

  int64_t max_runs = 256;
  int64_t max_runs_per_client = 64;
  double drift_gauge_window_s = 1800.0;

  double drain_delay_s = 2.0;
  double drain_timeout_s = 30.0;
  std::string log_level = "info";

  OtlpOptions otlp;  // of the environment

  // Constants without a flag, which tests shorten. Calls of a connection that
  // has reached its age may take longer than clients' deadlines; a token takes
  // up to 4096 bytes of metadata; a frozen client is noticed after 80 s.
  double max_connection_age_grace_s = 600.0;
  int64_t max_metadata_bytes = 8192;
  double keepalive_interval_s = 60.0;
  double keepalive_timeout_s = 20.0;
};

// Checks combinations of values that are valid one by one. Returns a sentence
// that names the flags, or an empty string.
std::string Validate(const Config& config);

// True if the metrics port speaks TLS.
bool HasMetricsTls(const Config& config);

// config.threads, or AvailableCpus(); at least 1.
int NumThreads(const Config& config);

// The bound on what gRPC holds beside max_bytes_in_flight, which counts only
// messages that have arrived whole: the parts of others, and answers that it
// sends. The largest message fits, however small the budget.
int64_t TransportBytes(const Config& config);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CONFIG_CONFIG_H_
