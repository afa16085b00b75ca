#include "server/listen/flooders.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

namespace counterweight::server {
namespace {

std::string NetworkOf(const std::string& address) {
  constexpr size_t kNetworkBytes = 8;
  in6_addr v6;
  if (inet_pton(AF_INET6, address.c_str(), &v6) != 1 ||
      IN6_IS_ADDR_V4MAPPED(&v6)) {
    return address;
  }
  std::fill(std::begin(v6.s6_addr) + kNetworkBytes, std::end(v6.s6_addr),
            uint8_t{0});
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, &v6, text.data(), text.size());
  return text.data();
}

}  // namespace

bool Flooders::Add(const std::string& address, Time now) {
  const std::string network = NetworkOf(address);
  if (addresses_.size() >= kMaxAddresses && !addresses_.contains(network)) {
    addresses_.erase(std::min_element(addresses_.begin(), addresses_.end(),
                                      [](const auto& a, const auto& b) {
                                        return a.second.last < b.second.last;
                                      }));
  }
  Closed& closed = addresses_[network];
  if (closed.connections == 0 || now - closed.first > kWindow) {
    closed = {.connections = 0, .first = now, .last = now, .refused_until = {}};
  }
  closed.connections += 1;
  closed.last = now;
  if (closed.connections < kMost) return false;
  closed.refused_until = now + kRefusal;
  return true;
}

bool Flooders::IsRefused(const std::string& address, Time now) const {
  if (addresses_.empty()) return false;
  const auto found = addresses_.find(NetworkOf(address));
  return found != addresses_.end() && now < found->second.refused_until;
}

}  // namespace counterweight::server
