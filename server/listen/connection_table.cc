#include "server/listen/connection_table.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace counterweight::server {

ConnectionTable::ConnectionTable(int64_t max_connections)
    : max_connections_(max_connections), epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

bool ConnectionTable::Add(int socket, const std::string& peer,
                          const std::string& name) {
  if (size_ >= max_connections_ && !MakeRoom(peer)) return false;
  Watched watched{FileDescriptor(fcntl(socket, F_DUPFD_CLOEXEC, 0)), peer,
                  name};
  if (!watched.duplicate.is_open()) return false;
  const uint64_t id = next_id_++;
  epoll_event event{};
  // Errors and the end of both directions are always reported.
  event.events = EPOLLRDHUP;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, watched.duplicate.get(), &event) !=
      0) {
    return false;
  }
  peers_[peer].emplace(id, watched.duplicate.get());
  connections_.emplace(id, std::move(watched));
  // A name that was used before belongs to the newest.
  if (!name.empty()) names_[name] = id;
  size_ = static_cast<int64_t>(connections_.size());
  return true;
}

void ConnectionTable::Clean() {
  std::array<epoll_event, 64> events{};
  const int count = epoll_wait(epoll_.get(), events.data(),
                               static_cast<int>(events.size()), /*timeout=*/0);
  for (int i = 0; i < count; ++i) Forget(events[i].data.u64);
}

bool ConnectionTable::MakeRoom(const std::string& peer) {
  const auto own = peers_.find(peer);
  const size_t own_size = own == peers_.end() ? 0 : own->second.size();
  const auto most = std::max_element(peers_.begin(), peers_.end(),
                                     [](const auto& a, const auto& b) {
                                       return a.second.size() < b.second.size();
                                     });
  if (most == peers_.end() || most->second.size() <= own_size + 1) return false;
  ShutDown(std::prev(most->second.end())->first);
  return true;
}

std::optional<std::string> ConnectionTable::Close(const std::string& name) {
  const auto found = names_.find(name);
  if (found == names_.end()) return std::nullopt;
  std::string peer = connections_.at(found->second).peer;
  ShutDown(found->second);
  return peer;
}

void ConnectionTable::EndWriting() const {
  for (const auto& [id, watched] : connections_) {
    shutdown(watched.duplicate.get(), SHUT_WR);
  }
}

void ConnectionTable::ShutDown(uint64_t id) {
  // The owner of the descriptor sees that, and closes it.
  shutdown(connections_.at(id).duplicate.get(), SHUT_RDWR);
  Forget(id);
}

void ConnectionTable::Forget(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const auto name = names_.find(found->second.name);
  if (name != names_.end() && name->second == id) names_.erase(name);
  const auto peer = peers_.find(found->second.peer);
  peer->second.erase(id);
  if (peer->second.empty()) peers_.erase(peer);
  // Before it is closed: an open description stays in an epoll set.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.duplicate.get(),
            nullptr);
  connections_.erase(found);
  size_ = static_cast<int64_t>(connections_.size());
}

}  // namespace counterweight::server
