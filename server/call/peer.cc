#include "server/call/peer.h"

namespace counterweight::server {

Peer ParsePeer(std::string_view peer) {
  if (peer.starts_with("unix")) return {"unix", "unix"};
  if (peer.starts_with("ipv4:") || peer.starts_with("ipv6:")) {
    return {"tcp", std::string(peer.substr(0, peer.rfind(':')))};
  }
  return {"inproc", "inproc"};
}

}  // namespace counterweight::server
