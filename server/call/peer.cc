#include "server/call/peer.h"

#include <utility>

namespace counterweight::server {

Peer ParsePeer(std::string_view peer) {
  if (peer.starts_with("unix")) return {"unix", "unix", nullptr};
  if (peer.starts_with("ipv4:") || peer.starts_with("ipv6:")) {
    return {"tcp", std::string(peer.substr(0, peer.rfind(':'))), nullptr};
  }
  return {"inproc", "inproc", nullptr};
}

Peer PeerOf(const grpc::CallbackServerContext& context, const Access& access) {
  Peer peer = ParsePeer(context.peer());
  const auto header = context.client_metadata().find("authorization");
  if (header == context.client_metadata().end()) return peer;
  peer.token = access.TokenIn({header->second.data(), header->second.size()});
  if (peer.token != nullptr) peer.client = "token:" + peer.token->name;
  return peer;
}

std::optional<Traceparent> TraceparentOf(
    const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kTraceparentKey);
  if (found == context.client_metadata().end()) return std::nullopt;
  return ParseTraceparent({found->second.data(), found->second.size()});
}

}  // namespace counterweight::server
