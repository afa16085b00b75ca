// Addresses of servers; rules 45 and 46 of client/README.md.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_TARGET_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_TARGET_H_

#include <string>
#include <string_view>
#include <vector>

namespace counterweight::client {

struct Target {
  // As gRPC takes it: a path is encoded.
  std::string text;
  // "dns", "ipv4", "ipv6", "unix", "unix-abstract"; empty for HOST:PORT.
  std::string scheme;
  // The name server of "dns://AUTHORITY/HOST:PORT".
  std::string authority;
  // Names and IP addresses without brackets, in order; none of a socket.
  std::vector<std::string> hosts;
};

// Returns why no call could reach the target, as the rest of a sentence that
// begins with it; empty if there is no reason. `target` is then complete.
std::string ParseTarget(std::string_view text, Target* target);

// True for "unix:" and "unix-abstract:".
bool IsSocket(const Target& target);
// True for the lists "ipv4:" and "ipv6:".
bool IsList(const Target& target);
// True if the bytes never leave this machine, except through a proxy.
bool StaysHere(const Target& target);
// True if an address may be of this machine; a proxy would take it for one of
// its own.
bool MayStayHere(const Target& target);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_TARGET_H_
