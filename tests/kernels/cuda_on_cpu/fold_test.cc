// The device's folds against fold() of walk/record.h, record by record.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/fold_columns.h"
#include "kernels/cuda/launch.h"
#include "kernels/walk/loss_row.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/random_rows.h"

namespace counterweight::kernels {
namespace {

// Device memory with a copy of `host`.
template <class T>
class Copied {
 public:
  explicit Copied(const std::vector<T>& host) : host_(host) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, Bytes()), cudaSuccess);
    device_ = static_cast<T*>(memory);
    EXPECT_EQ(cudaMemcpy(device_, host.data(), Bytes(), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~Copied() { cudaFree(device_); }
  Copied(const Copied&) = delete;
  Copied& operator=(const Copied&) = delete;

  T* device() const { return device_; }
  std::vector<T> Read() {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(
        cudaMemcpy(host_.data(), device_, Bytes(), cudaMemcpyDeviceToHost),
        cudaSuccess);
    return host_;
  }

 private:
  size_t Bytes() const { return host_.size() * sizeof(T); }

  std::vector<T> host_;
  T* device_ = nullptr;
};

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

template <class Record>
bool HasBytesOf(const Record& a, const Record& b) {
  return std::memcmp(&a, &b, sizeof(Record)) == 0;
}

TEST_F(FoldTest, OfRowsIsPairwiseByIndex) {
  for (const int64_t count : {1, 2, 3, 31, 32, 33, 64, 65, 96, 97, 127, 128,
                              129, 255, 257, 300, 16'385}) {
    std::vector<RowRecord> rows;
    for (int64_t i = 0; i < count; ++i) rows.push_back(RandomRow());
    Copied<RowRecord> copied(rows);
    DeviceJob job{};
    job.rows = copied.device();
    job.batch.num_sequences = count;
    fake_cuda::StartTrace();
    ASSERT_EQ(LaunchFoldRows(plan_, job, stream_), cudaSuccess);
    const RowRecord folded = copied.Read().front();
    EXPECT_EQ(fake_cuda::StopTrace().size(), count == 1        ? 0U
                                             : count <= 128    ? 1U
                                             : count <= 16'384 ? 2U
                                                               : 3U);
    FoldPairs(rows.data(), count,
              [&](RowRecord& a, const RowRecord& b) { fold(plan_, a, b); });
    EXPECT_TRUE(HasBytesOf(folded, rows.front())) << count;
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
  Copied<SegmentRecord> copied(segments);
  Copied<int64_t> row_segments(begins);
  Copied<RowState> fired(states);
  Copied<RowRecord> records(std::vector<RowRecord>(lengths.size()));
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
  const std::vector<SegmentRecord> folded = copied.Read();
  const std::vector<RowRecord> sums = records.Read();
  for (int64_t row = 0; row < rows; ++row) {
    SegmentRecord* const first = &segments[static_cast<size_t>(begins[row])];
    if (states[static_cast<size_t>(row)].fired != 0) {
      fold_loss_segments(lengths[row], [&](int64_t i) -> LossRecord& {
        return first[i].loss;
      });
      // Settling takes the statistics from the row's record, which is zero.
      take_statistics(sums[row], first->loss);
    }
    EXPECT_TRUE(HasBytesOf(folded[static_cast<size_t>(begins[row])], *first))
        << row;
  }
}

TEST_F(FoldTest, HasEveryColumnOnce) {
  for (const FoldColumns& columns :
       {ColumnsOfRows(plan_), ColumnsOfSegments(plan_), ColumnsOfLossPass()}) {
    std::vector<bool> seen(sizeof(RowRecord));
    for (int i = 0; i < columns.count; ++i) {
      EXPECT_FALSE(seen[columns.offset[i]]) << columns.offset[i];
      seen[columns.offset[i]] = true;
    }
  }
}

}  // namespace
}  // namespace counterweight::kernels
