#include "kernels/walk/pairwise.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace counterweight::kernels {

// Records that show in which order they were folded; of one kind four fold at
// once.
struct Pairs {
  std::string tree;
};
struct Fours {
  std::string tree;
};

void fold(const Plan& /*plan*/, Pairs& a, const Pairs& b) {
  a.tree = "(" + a.tree + b.tree + ")";
}
void fold(const Plan& /*plan*/, Fours& a, const Fours& b) {
  a.tree = "(" + a.tree + b.tree + ")";
}
void fold(const Plan& /*plan*/, Fours& a, const Fours& b, const Fours& c,
          const Fours& d) {
  a.tree = "((" + a.tree + b.tree + ")(" + c.tree + d.tree + "))";
}

namespace {

// Neighbours become one, level by level, an odd last one going up alone.
std::string Tree(std::vector<std::string> items) {
  while (items.size() > 1) {
    std::vector<std::string> folded;
    for (size_t i = 0; i < items.size(); i += 2) {
      folded.push_back(i + 1 < items.size()
                           ? "(" + items[i] + items[i + 1] + ")"
                           : items[i]);
    }
    items = folded;
  }
  return items.front();
}

template <class Record>
std::string Folded(const std::vector<std::string>& items) {
  const Plan plan{};
  PairwiseFold<Record, 8> fold;
  fold.reset();
  for (const std::string& item : items) {
    fold.next() = {item};
    fold.push(plan);
  }
  return fold.finish(plan).tree;
}

TEST(PairwiseFold, FoldsNeighboursLevelByLevel) {
  std::vector<std::string> items;
  for (int count = 1; count <= 128; ++count) {
    items.push_back(std::string(1, static_cast<char>('a' + count % 26)));
    EXPECT_EQ(Folded<Pairs>(items), Tree(items)) << count;
    EXPECT_EQ(Folded<Fours>(items), Tree(items)) << count;
  }
}

}  // namespace
}  // namespace counterweight::kernels
