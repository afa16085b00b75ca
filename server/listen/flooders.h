// Addresses with connections that flood the server again and again.
#ifndef COUNTERWEIGHT_SERVER_LISTEN_FLOODERS_H_
#define COUNTERWEIGHT_SERVER_LISTEN_FLOODERS_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

namespace counterweight::server {

// A connection that is closed for flooding costs its client one handshake; an
// address that has lost kMost of them within kWindow is refused for kRefusal.
// All clients of a proxy share its address. With an old gRPC alone: see
// base/old_grpc.h. For one thread.
class Flooders {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int kMost = 3;
  static constexpr std::chrono::seconds kWindow{60};
  static constexpr std::chrono::seconds kRefusal{10};
  // The address with the oldest closing makes room.
  static constexpr size_t kMaxAddresses = 1024;

  // Counts a closed connection of an IP address; true if the address is refused
  // from now on. Of IPv6 the network of 64 bits counts: a client may have all
  // of its addresses.
  bool Add(const std::string& address, Time now);
  bool IsRefused(const std::string& address, Time now) const;

  size_t size() const { return addresses_.size(); }

 private:
  struct Closed {
    int connections = 0;
    Time first;
    Time last;
    Time refused_until;
  };
  std::map<std::string, Closed> addresses_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LISTEN_FLOODERS_H_
