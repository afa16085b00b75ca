// A bounded set of recent ids.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_RECENT_IDS_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_RECENT_IDS_H_

#include <cstddef>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace counterweight::server {

// Remembers `capacity` ids of all owners together. When there are more, the
// owner with most loses its oldest, so that an owner with many takes no other's
// place. Not thread-safe.
class RecentIds {
 public:
  // Who has ids of its own: a run, and a client within it.
  using Owner = std::pair<std::string, std::string>;
  // The source of the report that the id's batch was corrected.
  enum class Source : bool { kServer, kPublication };

  explicit RecentIds(size_t capacity) : capacity_(capacity) {}

  // True if the batch counts: its id is new, or only publications had it while
  // the server itself corrected this one, so that none can hide the server's
  // batches. The id counts as the owner's most recent one either way.
  bool Insert(const Owner& owner, std::string id, Source source);

  // Forgets all ids of the run's owners.
  void Forget(std::string_view run);

  size_t size() const { return size_; }

 private:
  struct Id {
    std::string text;
    Source source;
  };
  struct Owned {
    std::list<Id> order;  // most recent first; `positions` views its texts
    std::unordered_map<std::string_view, std::list<Id>::iterator> positions;
  };
  using Owners = std::map<Owner, Owned>;

  // Removes the oldest id of the owner with most.
  void RemoveOne();

  struct IsSmaller {
    bool operator()(const Owners::iterator& a, const Owners::iterator& b) const;
  };

  const size_t capacity_;
  size_t size_ = 0;
  Owners owners_;
  std::set<Owners::iterator, IsSmaller> by_size_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_RECENT_IDS_H_
