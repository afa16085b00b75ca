// Rows leave their lanes behind, which later rows must not add to.
#include "kernels/walk/lane_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "kernels/plan/plan.h"
#include "kernels/walk/cpu_lanes.h"

namespace counterweight::kernels {
namespace {

class LaneColumnsTest : public testing::Test {
 protected:
  using Columns = LaneColumns<CpuLanes>;

  LaneColumnsTest() {
    columns_->clear(Plan{});
    std::ranges::fill(columns_->sum_lanes(kColumnAbs).at, 5.0);
    std::ranges::fill(columns_->sum_lanes(kColumnSquared).at, 5.0);
    std::ranges::fill(columns_->count_lanes(kColumnKept).at, 5.0f);
  }

  const std::unique_ptr<Columns> columns_ = std::make_unique<Columns>();
  const int abs_[1] = {kColumnAbs};
  const int sums_[2] = {kColumnAbs, kColumnSquared};
  const int counts_[1] = {kColumnKept};
};

TEST_F(LaneColumnsTest, ColumnsOfAPassBeginTogether) {
  EXPECT_TRUE(columns_->begins(sums_, counts_));
  EXPECT_FALSE(columns_->begins(sums_, counts_));
  EXPECT_FALSE(columns_->begins(abs_));
  EXPECT_EQ(columns_->sum(kColumnSquared).at[31], 5.0) << "was cleared";
}

TEST_F(LaneColumnsTest, ColumnsThatBeginBesideOthersAreCleared) {
  EXPECT_TRUE(columns_->begins(abs_));
  EXPECT_FALSE(columns_->begins(sums_, counts_));
  for (int i = 0; i < kLanes; ++i) {
    EXPECT_EQ(columns_->sum_lanes(kColumnAbs).at[i], 5.0);
    EXPECT_EQ(columns_->sum_lanes(kColumnSquared).at[i], 0.0);
    EXPECT_EQ(columns_->count_lanes(kColumnKept).at[i], 0.0f);
  }
}

TEST_F(LaneColumnsTest, ColumnsBeginAnewWithTheNextRow) {
  EXPECT_TRUE(columns_->begins(sums_));
  columns_->clear(Plan{});
  EXPECT_TRUE(columns_->begins(sums_));
}

}  // namespace
}  // namespace counterweight::kernels
