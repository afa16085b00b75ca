#include "server/listen/flood_watch.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "grpc/grpc.h"
#include "grpc/support/alloc.h"
#include "nlohmann/json.hpp"

namespace counterweight::server {
namespace {

using nlohmann::json;

// Takes an answer of channelz; an empty object if there is none, such as of a
// connection that has ended.
json Take(char* answer) {
  if (answer == nullptr) return json::object();
  json value = json::parse(answer, nullptr, false);
  gpr_free(answer);
  return value.is_object() ? value : json::object();
}

// JSON of protobuf has 64-bit integers as strings, and leaves 0 out.
int64_t Integer(const json& object, const char* name) {
  const std::string text = object.value(name, "0");
  return std::strtoll(text.c_str(), nullptr, 10);
}

}  // namespace

FloodWatch::FloodWatch(int64_t most_calls,
                       std::function<void(const std::string&)> on_flood)
    : most_calls_(most_calls),
      on_flood_(std::move(on_flood)),
      ticker_(kPeriod, [this] { Look(); }) {}

void FloodWatch::Look() {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t next = kNone;
  const json servers = Take(grpc_channelz_get_servers(0));
  for (const json& server : servers.value("server", json::array())) {
    const json list = Take(grpc_channelz_get_server_sockets(
        Integer(server.value("ref", json::object()), "serverId"), next_,
        kConnectionsAtOnce));
    int64_t last = 0;
    for (const json& socket : list.value("socketRef", json::array())) {
      last = Integer(socket, "socketId");
      LookAt(last);
    }
    if (last != 0 && !list.value("end", false)) next = std::min(next, last + 1);
  }
  next_ = next == kNone ? 0 : next;
}

void FloodWatch::LookAt(int64_t socket) const {
  const json answer =
      Take(grpc_channelz_get_socket(socket)).value("socket", json::object());
  const json counts = answer.value("data", json::object());
  const int64_t held = Integer(counts, "streamsStarted") -
                       Integer(counts, "streamsSucceeded") -
                       Integer(counts, "streamsFailed");
  if (held <= most_calls_) return;
  // "chttp2 ipv4:127.0.0.1:50051"
  const std::string name =
      answer.value("ref", json::object()).value("name", "");
  on_flood_(name.substr(name.rfind(' ') + 1));
}

}  // namespace counterweight::server
