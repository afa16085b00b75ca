#include "server/listen/connection_options.h"

#include <string>

#include "grpc/grpc.h"

namespace counterweight::server {
namespace {

// For TCP connections that never speak HTTP/2.
constexpr double kHandshakeTimeoutSeconds = 10;

// Clients ping every 20 s while they have calls (client/README.md); gRPC's own
// value, 5 minutes, would end the connection of a call that computes for long.
// Far below the clients' interval, because a ping that was late on its way is
// soon followed by the next.
constexpr double kMinClientPingIntervalSeconds = 1;
// Early pings that are tolerated; the next ends the connection. Data that the
// server sends resets the number.
constexpr int kMaxPingStrikes = 2;

// gRPC 1.51 has only GRPC_ARG_MAX_METADATA_SIZE. Later releases refuse metadata
// above that limit by chance, and above this one always.
constexpr char kAbsoluteMaxMetadataSize[] = "grpc.absolute_max_metadata_size";
// Since gRPC 1.58, for pings that measure the bandwidth; keepalive waits behind
// them.
constexpr char kPingTimeout[] = "grpc.http2.ping_timeout_ms";

int Milliseconds(double seconds) { return static_cast<int>(seconds * 1000); }

}  // namespace

void SetConnectionOptions(const Config& config, grpc::ServerBuilder* builder) {
  const auto set = [builder](const std::string& name, int value) {
    builder->AddChannelArgument(name, value);
  };
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
      Milliseconds(kHandshakeTimeoutSeconds));
  // The only clock that gRPC has for messages of its own services, such as
  // health, that never end.
  set(GRPC_ARG_MAX_CONNECTION_AGE_MS,
      Milliseconds(config.max_connection_age_s));
  set(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
      Milliseconds(config.max_connection_age_grace_s));
  // Without it a connection may open a hundred thousand calls, each with memory
  // in gRPC.
  set(GRPC_ARG_MAX_CONCURRENT_STREAMS,
      static_cast<int>(config.max_streams_per_connection));
  set(GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(config.max_metadata_bytes));
  set(kAbsoluteMaxMetadataSize, static_cast<int>(config.max_metadata_bytes));
  set(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(config.keepalive_interval_s));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(config.keepalive_timeout_s));
  set(kPingTimeout, Milliseconds(config.keepalive_timeout_s));
  // Also between calls: idle connections count for --max_connections.
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // By default gRPC 1.51 stops after two pings until it has sent data.
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Milliseconds(kMinClientPingIntervalSeconds));
  set(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kMaxPingStrikes);
}

}  // namespace counterweight::server
