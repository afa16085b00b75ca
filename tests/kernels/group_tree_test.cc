#include "kernels/cpu/group_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace counterweight::kernels {
namespace {

// Which groups were added to which, as text: a bracket is a fold.
class Folds {
 public:
  explicit Folds(int64_t groups) : tree_(groups), groups_(groups) {}

  // Completes all groups in that order; returns the root's text.
  std::string InOrder(const std::vector<int64_t>& order) {
    for (int64_t i = 0; i < groups_; ++i) {
      text_[tree_.At(i)] = std::to_string(i);
    }
    for (const int64_t i : order) {
      tree_.Complete(i, [&](RowRecord& into, const RowRecord& from) {
        text_[&into] = "(" + text_[&into] + " " + text_[&from] + ")";
      });
    }
    const std::string root = text_[&tree_.root()];
    tree_.Reset();
    return root;
  }

 private:
  GroupTree tree_;
  const int64_t groups_;
  std::map<const RowRecord*, std::string> text_;
};

std::vector<int64_t> UpTo(int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(GroupTree, PairsNeighboursAndTheOddLastOneGoesUpAlone) {
  const std::vector<std::string> expected = {"0",
                                             "(0 1)",
                                             "((0 1) 2)",
                                             "((0 1) (2 3))",
                                             "(((0 1) (2 3)) 4)",
                                             "(((0 1) (2 3)) (4 5))",
                                             "(((0 1) (2 3)) ((4 5) 6))"};
  for (size_t n = 1; n <= expected.size(); ++n) {
    const auto groups = static_cast<int64_t>(n);
    EXPECT_EQ(Folds(groups).InOrder(UpTo(groups)), expected[n - 1]);
  }
}

TEST(GroupTree, TheOrderOfCompletionChangesNothing) {
  std::mt19937 random(1);
  for (int64_t groups = 1; groups <= 40; ++groups) {
    Folds folds(groups);
    std::vector<int64_t> order = UpTo(groups);
    const std::string expected = folds.InOrder(order);
    std::reverse(order.begin(), order.end());
    EXPECT_EQ(folds.InOrder(order), expected);
    for (int i = 0; i < 20; ++i) {
      std::shuffle(order.begin(), order.end(), random);
      ASSERT_EQ(folds.InOrder(order), expected);
    }
  }
}

}  // namespace
}  // namespace counterweight::kernels
