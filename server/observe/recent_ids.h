// A bounded set of recent ids.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_RECENT_IDS_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_RECENT_IDS_H_

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

namespace counterweight::server {

// Remembers the last `capacity` ids. Not thread-safe.
class RecentIds {
 public:
  explicit RecentIds(size_t capacity) : capacity_(capacity) {}

  // True if `id` is new; it counts as the most recent one either way.
  bool Insert(std::string id);

 private:
  const size_t capacity_;
  // Most recent first; the map's keys view the list's strings.
  std::list<std::string> order_;
  std::unordered_map<std::string_view, std::list<std::string>::iterator>
      positions_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_RECENT_IDS_H_
