// Identity of the caller for logs: transport kind only. Limits also count by
// its IP address.
#ifndef COUNTERWEIGHT_SERVER_CALL_PEER_H_
#define COUNTERWEIGHT_SERVER_CALL_PEER_H_

#include <memory>
#include <string>
#include <string_view>

#include "grpcpp/server_context.h"
#include "server/access/access.h"
#include "server/access/token_table.h"
#include "server/log/traceparent.h"

namespace counterweight::server {

struct Peer {
  // "tcp", "unix" or "inproc": for the log.
  std::string_view transport;
  // The key of limits per client: the name of its token, "token:trainer", if
  // the server requires tokens; otherwise the IP address without the port, or
  // the transport. Never empty; never logged.
  std::string client;
  // Null without one; its name is for the log.
  std::shared_ptr<const TokenTable::Token> token;
};

// Reads grpc::ServerContext::peer(), e.g. "ipv4:10.0.0.7:40312".
Peer ParsePeer(std::string_view peer);

// Who makes this call, which Access::Check has let in.
Peer PeerOf(const grpc::CallbackServerContext& context, const Access& access);

// Returns the caller's trace; nothing if it has none.
std::optional<Traceparent> TraceparentOf(
    const grpc::CallbackServerContext& context);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_PEER_H_
