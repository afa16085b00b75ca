// How a client presents itself, and what it knows of a server.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_IDENTITY_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_IDENTITY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "grpcpp/support/channel_arguments.h"

namespace counterweight::client {

// Metadata key of the client's id, by which a server is fair to clients.
inline constexpr char kClientKey[] = "counterweight-client";

// 128 random bits as 32 hexadecimal digits.
std::string NewId();

// Arguments of every channel: no limits on sizes, no retries of gRPC's, a
// connection of its own, and a quick reconnection.
grpc::ChannelArguments MakeChannelArguments();

// The parts of GetServerInfo by which a transport is chosen.
struct Capabilities {
  // CorrectStream.
  bool stream = false;
  // Largest chunk in bytes; 0: unknown.
  uint64_t max_chunk_bytes = 0;
  // Path of the socket that registers memory; empty: none.
  std::string socket;
  // UUIDs of the devices with memory that it registers.
  std::vector<std::string> devices;
};
Capabilities ReadCapabilities(const v1::GetServerInfoResponse& info);

// A sentence about a server of a version that this library may not understand
// in full; empty if it does, or if the version is unknown. The first number
// that is not 0 decides: 1.x and 2.x differ, and 0.1 and 0.2.
std::string VersionWarning(std::string_view server_version);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_IDENTITY_H_
