// Calls that clients reset before their request arrived.
#ifndef COUNTERWEIGHT_SERVER_CALL_RESETS_H_
#define COUNTERWEIGHT_SERVER_CALL_RESETS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace counterweight::server {

// Finds connections that begin calls only to reset them. gRPC 1.51 keeps some
// 13 KB of each such call until it gets to it, and a connection can bring more
// than it gets to: gigabytes, long after the client has left (rapid reset,
// CVE-2023-44487). With an old gRPC alone: see base/old_grpc.h. Thread-safe.
class Resets {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // More of one connection within a window are no client's: clients take longer
  // than this to change their mind a thousand times.
  static constexpr int64_t kMost = 1000;
  static constexpr std::chrono::seconds kWindow{10};

  // `on_flood` is called with a connection's name when it has more than kMost,
  // once in a window.
  explicit Resets(std::function<void(const std::string&)> on_flood)
      : on_flood_(std::move(on_flood)) {}

  // Counts a call of the connection, a grpc::ServerContext::peer().
  void Add(const std::string& connection, Time now);

 private:
  const std::function<void(const std::string&)> on_flood_;
  std::mutex mutex_;  // guards all below
  Time window_;       // its start
  std::map<std::string, int64_t> counts_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_RESETS_H_
