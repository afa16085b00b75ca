// The scripted server's socket for shared memory (proto/README.md).
#ifndef COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_MEMORY_SOCKET_H_
#define COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_MEMORY_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "counterweight/v1/tensor.pb.h"
#include "nlohmann/json.hpp"

namespace counterweight::conformance {

using nlohmann::json;

// Registers regions of any number of clients, one packet at a time.
class MemorySocket {
 public:
  // `script` is the member "memory" of a scenario's server.
  MemorySocket(const std::string& path, const json& script);
  ~MemorySocket();
  MemorySocket(const MemorySocket&) = delete;
  MemorySocket& operator=(const MemorySocket&) = delete;

  // Bytes of the range; empty data() if the range lies in no region.
  std::span<std::byte> Find(const v1::SharedMemoryRange& range) const;
  // Forgets all regions, like a server that restarts; `disconnect` also ends
  // the connections.
  void Forget(bool disconnect);
  // One entry for each packet: operation, access, bytes, seals, the answer; of
  // a registration, how many with this access preceded it.
  json packets() const;

 private:
  struct Region {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  struct Packet;

  void Accept();
  void Serve(int connection);
  // Answers a packet; descriptor is -1 if it has none.
  Packet Answer(const Packet& packet, int descriptor);

  const json script_;
  int listener_ = -1;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, Region> regions_;
  // Mapped until the end, because a call may still use them.
  std::vector<Region> forgotten_;
  std::vector<int> connections_;
  json packets_ = json::array();
  uint64_t registered_ = 0;
  std::map<uint32_t, uint64_t> registered_by_access_;
  std::vector<std::jthread> threads_;
  std::jthread acceptor_;
};

}  // namespace counterweight::conformance

#endif  // COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_MEMORY_SOCKET_H_
