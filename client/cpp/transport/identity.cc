#include "client/cpp/transport/identity.h"

#include <algorithm>
#include <random>

namespace counterweight::client {
namespace {

constexpr char kVersion[] = COUNTERWEIGHT_VERSION;

// The version up to its first number that is not 0.
std::string_view Significant(std::string_view version) {
  for (size_t begin = 0; begin < version.size();) {
    const size_t end = std::min(version.find('.', begin), version.size());
    if (version.substr(begin, end - begin) != "0") {
      return version.substr(0, end);
    }
    begin = end + 1;
  }
  return version;
}

}  // namespace

std::string NewId() {
  thread_local std::random_device device;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (int word = 0; word < 4; ++word) {
    auto bits = static_cast<uint32_t>(device());
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) {
      id.push_back(kDigits[bits & 15]);
    }
  }
  return id;
}

grpc::ChannelArguments MakeChannelArguments() {
  grpc::ChannelArguments arguments;
  // The server's own limits apply.
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // gRPC's retries keep sent messages alive, and with them the caller's memory.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Channels of one process share a connection by default, which limits their
  // throughput.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // gRPC's own pauses grow to two minutes: a server would be back for long
  // before a client noticed it.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // It bounds one attempt to connect.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  arguments.SetUserAgentPrefix(std::string("counterweight-cpp/") + kVersion);
  return arguments;
}

Capabilities ReadCapabilities(const v1::GetServerInfoResponse& info) {
  const auto offers = [&features = info.features()](std::string_view name) {
    return std::find(features.begin(), features.end(), name) != features.end();
  };
  Capabilities known = {.stream = offers("stream"),
                        .max_chunk_bytes = info.limits().max_chunk_bytes(),
                        .socket = info.shared_memory_socket()};
  if (offers("cuda_ipc")) {
    for (const v1::Device& device : info.devices()) {
      known.devices.push_back(device.uuid());
    }
  }
  return known;
}

std::string VersionWarning(std::string_view server_version) {
  if (server_version.empty() ||
      Significant(server_version) == Significant(kVersion)) {
    return "";
  }
  return std::string("counterweight: the client has version ") + kVersion +
         ", the server " + std::string(server_version) +
         "; newer parts of its answers may be skipped";
}

}  // namespace counterweight::client
