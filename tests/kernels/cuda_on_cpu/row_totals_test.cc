// The device's sums of segments and rows, against sums of one number after the
// other.
#include "kernels/walk/row_totals.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/math/exact_sum.h"
#include "kernels/walk/column_table.h"
#include "kernels/walk/loss_row.h"
#include "kernels/walk/make_plan.h"
#include "kernels/walk/packed_records.h"
#include "kernels/walk/record_columns.h"
#include "tests/kernels/cuda_on_cpu/copied.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"

namespace counterweight::kernels {
namespace {

class RowTotals : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::ForgetErrors();
    fake_cuda::SetSeed(0);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
  }
  void TearDown() override { cudaStreamDestroy(stream_); }

  // Numbers of many magnitudes, so that the order of additions shows.
  template <class T, size_t kSize>
  void Fill(T (&values)[kSize]) {
    for (T& x : values) {
      const double scale = random_.Chance(0.5) ? 1e-6 : 1e2;
      x = static_cast<T>(random_.Normal() * scale);
    }
  }
  // Counts are whole numbers.
  static void Round(double* columns, double* loss) {
    for (int c = 0; c < kMaxTokenColumns; ++c) {
      if (IsWhole(c)) columns[c] = std::round(columns[c]);
    }
    for (int c = 0; c < kNumLossColumns; ++c) {
      if (IsWhole(kColumnLoss + c)) loss[c] = std::round(loss[c]);
    }
  }
  SegmentRecord RandomSegment() {
    SegmentRecord record{};
    Fill(record.sums);
    Fill(record.low);
    Fill(record.high);
    record.first_bad = random_.Integer(0, 1 << 30);
    Fill(record.loss.sums);
    Fill(record.loss.low);
    Fill(record.loss.high);
    Round(record.sums, record.loss.sums);
    return record;
  }
  RowRecord RandomRow() {
    RowRecord record{};
    Fill(record.token_sums);
    Fill(record.row_sums);
    Fill(record.token_low);
    Fill(record.token_high);
    Fill(record.row_low);
    Fill(record.row_high);
    record.first_bad = random_.Integer(0, 1 << 30);
    Fill(record.loss_sums);
    Fill(record.row_loss_sums);
    Fill(record.row_loss_low);
    Fill(record.row_loss_high);
    Round(record.token_sums, record.loss_sums);
    for (int c = 0; c < kMaxRowColumns; ++c) {
      if (IsRowCount(c)) record.row_sums[c] = std::round(record.row_sums[c]);
    }
    return record;
  }

  Random random_{1};
  cudaStream_t stream_ = nullptr;
  const Plan plan_ = MakePlan(WithLoss(BusyLoss(Surrogate::kPpoClip, 0.2)));
};

std::vector<char> Packed(const Plan& plan, std::vector<RowRecord> rows) {
  std::vector<char> packed(rows.size() *
                           static_cast<size_t>(row_offsets(plan).bytes));
  for (size_t i = 0; i < rows.size(); ++i) {
    PackedRow to = row_at(plan, packed.data(), static_cast<int64_t>(i));
    copy_row(plan, rows[i], to);
  }
  return packed;
}

std::vector<char> Packed(const Plan& plan,
                         const std::vector<SegmentRecord>& segments) {
  std::vector<char> packed(segments.size() *
                           static_cast<size_t>(segment_offsets(plan).bytes));
  for (size_t i = 0; i < segments.size(); ++i) {
    const SegmentRecord& from = segments[i];
    const PackedSegment to =
        segment_at(plan, packed.data(), static_cast<int64_t>(i));
    std::copy_n(from.sums, plan.token_columns, to.sums);
    std::copy_n(from.low, plan.token_extrema, to.low);
    std::copy_n(from.high, plan.token_extrema, to.high);
    to.first_bad = from.first_bad;
    if (plan.loss.active) to.loss = from.loss;
  }
  return packed;
}

// The columns of `records`, which become one.
template <class Record>
std::vector<char> AddedUp(const Plan& plan, const RecordColumns& columns,
                          const std::vector<Record>& records) {
  const std::vector<char> packed = Packed(plan, records);
  const size_t bytes = packed.size() / records.size();
  std::vector<char> sum(packed.begin(),
                        packed.begin() + static_cast<int64_t>(bytes));
  for (int c = 0; c < columns.count; ++c) {
    const ColumnOp op = columns.op[c];
    const auto all = [&](auto start, auto join) {
      auto total = start;
      for (size_t i = 0; i < records.size(); ++i) {
        decltype(total) x;
        std::memcpy(&x, &packed[i * bytes + columns.offset[c]], sizeof(x));
        total = join(total, x);
      }
      std::memcpy(&sum[columns.offset[c]], &total, sizeof(total));
    };
    const auto least = [](auto a, auto b) { return std::min(a, b); };
    const auto most = [](auto a, auto b) { return std::max(a, b); };
    ExactSum exact;
    switch (op) {
      case ColumnOp::kSum:
        all(0.0, [&](double /*total*/, double x) {
          exact.add(x);
          return exact.sum();
        });
        break;
      case ColumnOp::kWhole:
        all(0.0, [](double total, double x) { return total + x; });
        break;
      case ColumnOp::kLow:
        all(HUGE_VAL, least);
        break;
      case ColumnOp::kHigh:
        all(-HUGE_VAL, most);
        break;
      case ColumnOp::kFirst:
        all(kNoBadToken, least);
        break;
      case ColumnOp::kFloatLow:
        all(HUGE_VALF, least);
        break;
      case ColumnOp::kFloatHigh:
        all(-HUGE_VALF, most);
        break;
    }
  }
  return sum;
}

TEST_F(RowTotals, AreExactWhateverTheOrderOfRows) {
  const RecordColumns columns = ColumnsOfRows(plan_);
  for (const int64_t count : {1, 2, 31, 32, 33, 64, 97, 300, 4097}) {
    std::vector<RowRecord> rows;
    for (int64_t i = 0; i < count; ++i) rows.push_back(RandomRow());
    const std::vector<char> expected = AddedUp(plan_, columns, rows);
    for (const bool is_shuffled : {false, true}) {
      if (is_shuffled) std::reverse(rows.begin(), rows.end());
      Copied<char> copied(Packed(plan_, rows));
      Copied<double> totals(
          std::vector<double>(static_cast<size_t>(columns.totals)));
      DeviceJob job{};
      job.rows = copied.device();
      job.totals = totals.device();
      job.begins_totals = true;
      job.batch.num_sequences = count;
      fake_cuda::StartTrace();
      ASSERT_EQ(LaunchAddRows(plan_, job, stream_), cudaSuccess);
      std::vector<double> added = totals.Read();
      EXPECT_EQ(fake_cuda::StopTrace().size(), 1U);
      const std::vector<char> record =
          Packed(plan_, std::vector{RecordOf(plan_, added.data())});
      EXPECT_EQ(record, expected) << count;
    }
  }
}

// The totals have room for so many addends, then bins are carried.
TEST_F(RowTotals, OfMoreWarpsThanBinsHaveRoomFor) {
  constexpr int64_t kRows = (int64_t{kMostAddends} + 1) * 32;
  RowRecord row = RandomRow();
  // The largest number of the middle bins, many times.
  for (double& x : row.token_sums) x = 0x1.fffffffffffffp24;
  for (double& x : row.row_sums) x = -0x1.fffffffffffffp64;
  Copied<char> copied(
      Packed(plan_, std::vector<RowRecord>(static_cast<size_t>(kRows), row)));
  const RecordColumns columns = ColumnsOfRows(plan_);
  Copied<double> totals(
      std::vector<double>(static_cast<size_t>(columns.totals)));
  DeviceJob job{};
  job.rows = copied.device();
  job.totals = totals.device();
  job.begins_totals = true;
  job.batch.num_sequences = kRows;
  ASSERT_EQ(LaunchAddRows(plan_, job, stream_), cudaSuccess);
  std::vector<double> added = totals.Read();
  const RowRecord sum = RecordOf(plan_, added.data());
  EXPECT_EQ(sum.row_sums[kRowChi2], row.row_sums[kRowChi2] * kRows);
  EXPECT_EQ(sum.token_sums[kColumnLogRatio],
            row.token_sums[kColumnLogRatio] * kRows);
}

// Rows of all lengths, and a loss pass in which one of them takes no part.
TEST_F(RowTotals, OfSegmentsGoIntoTheFirst) {
  const std::vector<int64_t> lengths = {1, 3, 130, 1, 32, 33, 300, 2};
  std::vector<int64_t> begins = {0};
  for (const int64_t length : lengths) begins.push_back(begins.back() + length);
  std::vector<SegmentRecord> segments;
  for (int64_t i = 0; i < begins.back(); ++i) {
    segments.push_back(RandomSegment());
  }
  const auto rows = static_cast<int64_t>(lengths.size());
  std::vector<RowState> states(lengths.size());
  for (RowState& state : states) state.fired = 1;
  states[2].fired = 0;
  Copied<char> copied(Packed(plan_, segments));
  Copied<int64_t> row_segments(begins);
  Copied<RowState> fired(states);
  const RowRecord nothing{};
  Copied<char> records(
      Packed(plan_, std::vector<RowRecord>(lengths.size(), nothing)));
  DeviceJob job{};
  job.batch.num_sequences = rows;
  job.num_segments = begins.back();
  job.row_segments = row_segments.device();
  job.most_segments = 300;
  job.records = copied.device();
  job.states = fired.device();
  job.rows = records.device();
  job.fired_rows_only = true;
  ASSERT_EQ(LaunchSettleLoss(plan_, job, stream_), cudaSuccess);
  const std::vector<char> added = copied.Read();
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = segments.begin() + begins[static_cast<size_t>(row)];
    std::vector<SegmentRecord> own(first,
                                   first + lengths[static_cast<size_t>(row)]);
    if (states[static_cast<size_t>(row)].fired == 0) own.resize(1);
    // Settling takes the statistics from the row's record, which is zero.
    if (states[static_cast<size_t>(row)].fired != 0) {
      for (SegmentRecord& segment : own) take_statistics(nothing, segment.loss);
    }
    const std::vector<char> expected =
        own.size() == 1 ? Packed(plan_, own)
                        : AddedUp(plan_, ColumnsOfLossPass(plan_), own);
    const auto bytes = static_cast<int64_t>(expected.size());
    EXPECT_TRUE(
        std::equal(expected.begin(), expected.end(),
                   added.begin() + begins[static_cast<size_t>(row)] * bytes))
        << row;
  }
}

// Every byte of a record belongs to one column, so that nothing is read that no
// walk has written.
TEST_F(RowTotals, HasEveryColumnOnce) {
  for (const CorrectionSpec& spec :
       {BusySpec(), CorrectionSpec{},
        WithLoss(BusyLoss(Surrogate::kPpoClip, 0.2))}) {
    const Plan plan = MakePlan(spec);
    const auto covers = [](const RecordColumns& columns, int32_t bytes) {
      std::vector<int> seen(static_cast<size_t>(bytes));
      for (int i = 0; i < columns.count; ++i) {
        const bool is_float = columns.op[i] == ColumnOp::kFloatLow ||
                              columns.op[i] == ColumnOp::kFloatHigh;
        const size_t size = is_float ? sizeof(float) : sizeof(double);
        for (size_t b = 0; b < size; ++b) ++seen.at(columns.offset[i] + b);
      }
      return seen == std::vector<int>(static_cast<size_t>(bytes), 1);
    };
    EXPECT_TRUE(covers(ColumnsOfRows(plan), row_offsets(plan).bytes));
    EXPECT_TRUE(covers(ColumnsOfSegments(plan), segment_offsets(plan).bytes));
  }
}

// Short rows need a record every few tokens, in memory that a trainer lacks.
TEST_F(RowTotals, RecordsHaveOnlyColumnsOfThePlan) {
  const Plan plan = MakePlan(CorrectionSpec{});
  EXPECT_LE(segment_offsets(plan).bytes + row_offsets(plan).bytes, 1100);
  EXPECT_LE(static_cast<size_t>(row_offsets(plan_).bytes), sizeof(RowRecord));
}

}  // namespace
}  // namespace counterweight::kernels
