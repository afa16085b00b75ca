#include "server/call/arrivals.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace counterweight::server {

std::shared_ptr<void> Arrivals::Enter(const std::string& peer,
                                      const std::string& connection, Time now,
                                      std::function<void()> give_way) {
  std::function<void()> displaced;
  std::shared_ptr<void> place;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->calls >= max_calls_) {
      displaced = Displace(state_.get(), peer, connection, now);
      if (!displaced) return nullptr;
    }
    const uint64_t id = state_->next_id++;
    state_->peers[peer].emplace(id, Call{connection, now, std::move(give_way)});
    ++state_->calls;
    place = {state_.get(), [state = state_, peer, id](void*) {
               const std::lock_guard<std::mutex> guard(state->mutex);
               Leave(state.get(), peer, id);
             }};
  }
  if (displaced) displaced();
  return place;
}

Arrivals::Calls::iterator Arrivals::Crowding(Calls* calls,
                                             const std::string& connection) {
  std::map<std::string_view, int64_t> counts;
  for (const auto& [id, call] : *calls) ++counts[call.connection];
  const auto most = std::max_element(
      counts.begin(), counts.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto own = counts.find(connection);
  const int64_t own_calls = own == counts.end() ? 0 : own->second;
  if (most == counts.end() || most->second <= own_calls + 1) {
    return calls->end();
  }
  auto newest = std::prev(calls->end());
  while (newest->second.connection != most->first) --newest;
  return newest;
}

std::function<void()> Arrivals::Displace(State* state, const std::string& peer,
                                         const std::string& connection,
                                         Time now) {
  auto& peers = state->peers;
  const auto most = std::max_element(peers.begin(), peers.end(),
                                     [](const auto& a, const auto& b) {
                                       return a.second.size() < b.second.size();
                                     });
  if (most == peers.end()) return nullptr;
  const auto own = peers.find(peer);
  const size_t own_calls = own == peers.end() ? 0 : own->second.size();
  Calls::iterator call;
  if (most->second.size() > own_calls + 1) {
    call = std::prev(most->second.end());
  } else if (own_calls > 0) {
    Calls& calls = own->second;
    call = Crowding(&calls, connection);
    if (call == calls.end()) {
      call = std::find_if(calls.begin(), calls.end(), [&](const auto& each) {
        return each.second.connection == connection;
      });
      // Then each connection has one call.
      if (call == calls.end()) call = calls.begin();
      if (now - call->second.since < kSilence) return nullptr;
    }
  } else {
    return nullptr;
  }
  std::function<void()> give_way = std::move(call->second.give_way);
  const bool is_own = most->second.size() <= own_calls + 1;
  Leave(state, std::string(is_own ? peer : most->first), call->first);
  return give_way;
}

int64_t Arrivals::calls() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->calls;
}

void Arrivals::Leave(State* state, const std::string& peer, uint64_t id) {
  const auto calls = state->peers.find(peer);
  // The call has given way already.
  if (calls == state->peers.end() || calls->second.erase(id) == 0) return;
  --state->calls;
  if (calls->second.empty()) state->peers.erase(calls);
}

}  // namespace counterweight::server
