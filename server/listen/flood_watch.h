// Connections that bring calls faster than gRPC gets to them.
#ifndef COUNTERWEIGHT_SERVER_LISTEN_FLOOD_WATCH_H_
#define COUNTERWEIGHT_SERVER_LISTEN_FLOOD_WATCH_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "server/base/ticker.h"

namespace counterweight::server {

// Finds rapid reset (CVE-2023-44487) where no call shows it: gRPC 1.51 takes a
// reset call off a connection's open calls at once, and keeps some 13 KB of it
// until it gets to it. It can parse for seconds before it does, and its limit
// of open calls does not end. channelz counts calls when they are parsed and
// when they are gone, so their difference is what gRPC holds of a connection.
// With an old gRPC alone: see base/old_grpc.h.
class FloodWatch {
 public:
  static constexpr std::chrono::milliseconds kPeriod{200};
  // A look costs 10 us a connection, so that many connections take turns.
  static constexpr int64_t kConnectionsAtOnce = 100;

  // `on_flood` is called with a connection's name, a
  // grpc::ServerContext::peer(), at each look at it while gRPC holds more than
  // `most_calls` of it.
  FloodWatch(int64_t most_calls,
             std::function<void(const std::string&)> on_flood);

  // Waits for a look that has begun.
  ~FloodWatch() { ticker_.Stop(); }

 private:
  void Look();
  void LookAt(int64_t socket) const;

  const int64_t most_calls_;
  const std::function<void(const std::string&)> on_flood_;
  int64_t next_ = 0;  // the connection where the next look begins
  Ticker ticker_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LISTEN_FLOOD_WATCH_H_
