#include "server/arrivals.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace counterweight::server {

std::shared_ptr<void> Arrivals::Enter(const std::string& peer,
                                      std::function<void()> give_way) {
  std::function<void()> displaced;
  std::shared_ptr<void> place;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    auto& peers = state_->peers;
    if (state_->calls >= max_calls_) {
      const auto most = std::max_element(
          peers.begin(), peers.end(), [](const auto& a, const auto& b) {
            return a.second.size() < b.second.size();
          });
      const auto own = peers.find(peer);
      const size_t own_calls = own == peers.end() ? 0 : own->second.size();
      if (most == peers.end() || most->second.size() <= own_calls + 1) {
        return nullptr;
      }
      const auto newest = std::prev(most->second.end());
      displaced = std::move(newest->second);
      Leave(state_.get(), std::string(most->first), newest->first);
    }
    const uint64_t id = state_->next_id++;
    peers[peer].emplace(id, std::move(give_way));
    ++state_->calls;
    place = {state_.get(), [state = state_, peer, id](void*) {
               const std::lock_guard<std::mutex> guard(state->mutex);
               Leave(state.get(), peer, id);
             }};
  }
  if (displaced) displaced();
  return place;
}

int64_t Arrivals::calls() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->calls;
}

void Arrivals::Leave(State* state, const std::string& peer, uint64_t id) {
  const auto calls = state->peers.find(peer);
  // It has given way already.
  if (calls == state->peers.end() || calls->second.erase(id) == 0) return;
  --state->calls;
  if (calls->second.empty()) state->peers.erase(calls);
}

}  // namespace counterweight::server
