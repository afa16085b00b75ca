// The device's folds against fold() of plan/record.h, record by record.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/fold_columns.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/packed_records.h"
#include "kernels/walk/loss_row.h"
#include "kernels/walk/make_plan.h"
#include "tests/kernels/cuda_on_cpu/copied.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"

namespace counterweight::kernels {
namespace {

class FoldTest : public ::testing::Test {
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
  SegmentRecord RandomSegment() {
    SegmentRecord record{};
    Fill(record.sums);
    Fill(record.low);
    Fill(record.high);
    record.first_bad = random_.Integer(0, 1 << 30);
    Fill(record.loss.sums);
    Fill(record.loss.low);
    Fill(record.loss.high);
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
    return record;
  }

  // As fold() does it, into the first.
  template <class Record, class F>
  static void FoldPairs(Record* records, int64_t count, F fold_two) {
    for (int64_t stride = 1; stride < count; stride *= 2) {
      for (int64_t i = 0; i + stride < count; i += 2 * stride) {
        fold_two(records[i], records[i + stride]);
      }
    }
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

// Whether the `index`-th record of an array has the columns of `expected`.
template <class Record>
bool HasBytesOf(const Plan& plan, const std::vector<char>& records,
                int64_t index, const Record& expected) {
  const std::vector<char> packed = Packed(plan, std::vector<Record>{expected});
  const auto bytes = static_cast<int64_t>(packed.size());
  return std::equal(packed.begin(), packed.end(),
                    records.begin() + index * bytes);
}

TEST_F(FoldTest, OfRowsIsPairwiseByIndex) {
  for (const int64_t count : {1, 2, 3, 31, 32, 33, 64, 65, 96, 97, 127, 128,
                              129, 255, 257, 300, 16'385}) {
    std::vector<RowRecord> rows;
    for (int64_t i = 0; i < count; ++i) rows.push_back(RandomRow());
    Copied<char> copied(Packed(plan_, rows));
    DeviceJob job{};
    job.rows = copied.device();
    job.batch.num_sequences = count;
    job.shared_bytes = 48 << 10;
    fake_cuda::StartTrace();
    ASSERT_EQ(LaunchFoldRows(plan_, job, stream_), cudaSuccess);
    const std::vector<char> folded = copied.Read();
    EXPECT_EQ(fake_cuda::StopTrace().size(), count == 1      ? 0U
                                             : count <= 32   ? 1U
                                             : count <= 1024 ? 2U
                                                             : 3U);
    FoldPairs(rows.data(), count,
              [&](RowRecord& a, const RowRecord& b) { fold(plan_, a, b); });
    EXPECT_TRUE(HasBytesOf(plan_, folded, 0, rows.front())) << count;
  }
}

// Rows of all lengths, and a loss pass in which one of them takes no part.
TEST_F(FoldTest, OfSegmentsIsPairwiseByIndex) {
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
  const std::vector<char> folded = copied.Read();
  for (int64_t row = 0; row < rows; ++row) {
    SegmentRecord* const first = &segments[static_cast<size_t>(begins[row])];
    if (states[static_cast<size_t>(row)].fired != 0) {
      fold_loss_segments(lengths[row], [&](int64_t i) -> LossRecord& {
        return first[i].loss;
      });
      // Settling takes the statistics from the row's record, which is zero.
      take_statistics(nothing, first->loss);
    }
    EXPECT_TRUE(HasBytesOf(plan_, folded, begins[row], *first)) << row;
  }
}

// Every byte of a record belongs to one column, so that nothing is read that no
// walk has written.
TEST_F(FoldTest, HasEveryColumnOnce) {
  for (const CorrectionSpec& spec :
       {BusySpec(), CorrectionSpec{},
        WithLoss(BusyLoss(Surrogate::kPpoClip, 0.2))}) {
    const Plan plan = MakePlan(spec);
    const auto covers = [](const FoldColumns& columns, int32_t bytes) {
      std::vector<int> seen(static_cast<size_t>(bytes));
      for (int i = 0; i < columns.count; ++i) {
        const bool is_float = columns.op[i] == FoldOp::kFloatLow ||
                              columns.op[i] == FoldOp::kFloatHigh;
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
TEST_F(FoldTest, RecordsHaveOnlyColumnsOfThePlan) {
  const Plan plan = MakePlan(CorrectionSpec{});
  EXPECT_LE(segment_offsets(plan).bytes + row_offsets(plan).bytes, 1100);
  EXPECT_LE(static_cast<size_t>(row_offsets(plan_).bytes), sizeof(RowRecord));
}

}  // namespace
}  // namespace counterweight::kernels
