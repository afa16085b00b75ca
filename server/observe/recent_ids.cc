#include "server/observe/recent_ids.h"

#include <iterator>
#include <utility>

namespace counterweight::server {

bool RecentIds::IsSmaller::operator()(const Owners::iterator& a,
                                      const Owners::iterator& b) const {
  const size_t a_size = a->second.order.size();
  const size_t b_size = b->second.order.size();
  return a_size != b_size ? a_size < b_size : a->first < b->first;
}

bool RecentIds::Insert(const Owner& owner, std::string id, Source source) {
  const auto place = owners_.try_emplace(owner).first;
  Owned& owned = place->second;
  if (const auto found = owned.positions.find(id);
      found != owned.positions.end()) {
    owned.order.splice(owned.order.begin(), owned.order, found->second);
    Id& known = *found->second;
    const bool is_hidden =
        source == Source::kServer && known.source == Source::kPublication;
    if (is_hidden) known.source = source;
    return is_hidden;
  }
  by_size_.erase(place);
  owned.order.push_front({std::move(id), source});
  owned.positions.emplace(owned.order.front().text, owned.order.begin());
  by_size_.insert(place);
  if (++size_ > capacity_) RemoveOne();
  return true;
}

void RecentIds::RemoveOne() {
  const Owners::iterator largest = *std::prev(by_size_.end());
  by_size_.erase(largest);
  Owned& owned = largest->second;
  owned.positions.erase(owned.order.back().text);
  owned.order.pop_back();
  --size_;
  if (owned.order.empty()) {
    owners_.erase(largest);
  } else {
    by_size_.insert(largest);
  }
}

void RecentIds::Forget(std::string_view run) {
  auto owner = owners_.lower_bound({std::string(run), std::string()});
  while (owner != owners_.end() && owner->first.first == run) {
    size_ -= owner->second.order.size();
    by_size_.erase(owner);
    owner = owners_.erase(owner);
  }
}

}  // namespace counterweight::server
