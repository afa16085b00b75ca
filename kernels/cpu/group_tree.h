// The records of groups of rows, which the threads that walk them add up.
#ifndef COUNTERWEIGHT_KERNELS_CPU_GROUP_TREE_H_
#define COUNTERWEIGHT_KERNELS_CPU_GROUP_TREE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/walk/row_record.h"

namespace counterweight::kernels {

// Pairs neighbours level by level, an odd last one going up alone, in whatever
// order groups are done: no bit depends on the threads. The thread that
// completes a pair folds it, while the records are in its cache; none waits.
class GroupTree {
 public:
  explicit GroupTree(int64_t groups) : nodes_(Take(groups)), groups_(groups) {
    Reset();
  }
  ~GroupTree() {
    if (nodes_.size <= kMostKept) Spare() = std::move(nodes_);
  }
  GroupTree(const GroupTree&) = delete;
  GroupTree& operator=(const GroupTree&) = delete;

  // Bytes that the constructor allocates at most.
  static int64_t Bytes(int64_t groups) {
    return groups * static_cast<int64_t>(sizeof(Node));
  }

  // Where the record of a group is to be written.
  RowRecord* At(int64_t group) { return &node(group).record; }

  // The group's record is written. Calls fold(into, from) for each pair that is
  // complete now. Other threads may be at other groups.
  template <class Fold>
  void Complete(int64_t group, const Fold& fold) {
    for (int64_t half = 1; half < groups_; half *= 2) {
      const int64_t left = group / (2 * half) * (2 * half);
      const int64_t right = left + half;
      if (right >= groups_) continue;
      // The first thread at a node leaves the pair to the second.
      if (!node(right).has_half.exchange(true, std::memory_order_acq_rel)) {
        return;
      }
      fold(node(left).record, node(right).record);
    }
  }

  // The sum of all. REQUIRES: there are groups, and all are complete.
  const RowRecord& root() const { return nodes_.memory[0].record; }

  // Begins anew. REQUIRES: no other thread is here.
  void Reset() {
    for (int64_t i = 0; i < groups_; ++i) {
      node(i).has_half.store(false, std::memory_order_relaxed);
    }
  }

 private:
  struct Node {
    RowRecord record;
    // One half is complete of the pair with its right half here.
    std::atomic<bool> has_half;
  };
  struct Nodes {
    std::unique_ptr<Node[]> memory;
    int64_t size = 0;
  };

  // Small batches follow each other quickly, so a thread keeps the memory of
  // its last one, 100 KB at most.
  static constexpr int64_t kMostKept = 32;
  static Nodes& Spare() {
    thread_local Nodes nodes;
    return nodes;
  }
  static Nodes Take(int64_t groups) {
    if (groups <= Spare().size) return std::exchange(Spare(), {});
    return {std::make_unique_for_overwrite<Node[]>(static_cast<size_t>(groups)),
            groups};
  }

  Node& node(int64_t i) { return nodes_.memory[static_cast<size_t>(i)]; }

  Nodes nodes_;
  const int64_t groups_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CPU_GROUP_TREE_H_
