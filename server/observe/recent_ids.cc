#include "server/observe/recent_ids.h"

#include <utility>

namespace counterweight::server {

bool RecentIds::Insert(std::string id) {
  if (const auto found = positions_.find(id); found != positions_.end()) {
    order_.splice(order_.begin(), order_, found->second);
    return false;
  }
  order_.push_front(std::move(id));
  positions_.emplace(order_.front(), order_.begin());
  if (order_.size() > capacity_) {
    positions_.erase(order_.back());
    order_.pop_back();
  }
  return true;
}

}  // namespace counterweight::server
