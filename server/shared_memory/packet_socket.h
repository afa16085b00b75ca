// Packets and descriptors over a Unix socket. Nothing here blocks.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_PACKET_SOCKET_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_PACKET_SOCKET_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/file_descriptor.h"
#include "server/shared_memory/control.h"

namespace counterweight::server {

struct Packet {
  std::span<const uint8_t> bytes() const { return {buffer.data(), size}; }

  // One byte longer than the longest request, to detect longer packets.
  std::array<uint8_t, kDevicePacketBytes + 1> buffer = {};
  size_t size = 0;
  std::vector<FileDescriptor> descriptors;
  // True if this process could not receive all descriptors.
  bool lost_descriptors = false;
};

enum class Received : uint8_t { kPacket, kNothing, kEnd };

// kEnd: the peer left, or sent an empty packet, which looks the same.
Received ReceivePacket(int socket, Packet* packet);

// False if the peer left, or does not read what it is sent.
bool SendPacket(int socket, std::string_view packet);

// Returns the user who connected, as recorded by the kernel; none if unknown.
std::optional<uid_t> PeerUserId(int socket);

// Listens at `path`, which must not exist, for this process's user alone.
// Otherwise returns none with *error, a sentence's end. Call it only at start,
// see PrivateFiles.
FileDescriptor ListenForPackets(const std::string& path, std::string* error);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_PACKET_SOCKET_H_
