// Kernels that add up columns of records, one column a lane: a warp reads 32
// columns of a record at once.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_ADD_COLUMNS_CUH_
#define COUNTERWEIGHT_KERNELS_CUDA_ADD_COLUMNS_CUH_

#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"
#include "kernels/walk/packed_records.h"
#include "kernels/walk/row_totals.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// The segments of rows, of which the first receives the sums of all.
struct SegmentsToAdd {
  char* records;
  int64_t record_bytes;
  int64_t rows;
  const int64_t* row_segments;  // [rows + 1]
  // [rows] null: all; else only where a rule fired.
  const RowState* states;
};

// Records of rows, which are added to the batch's totals.
struct RowsToAdd {
  const char* records;
  int64_t record_bytes;
  int64_t rows;
  double* totals;
};

namespace {

// Loads so many records before it adds them, so that their latencies overlap.
constexpr int kLoads = 8;

template <class T, class F>
__device__ void for_each_number(const char* first, int64_t bytes_apart,
                                int64_t count, F f) {
  for (int64_t i = 0; i < count; i += kLoads) {
    T values[kLoads];
    COUNTERWEIGHT_UNROLL
    for (int n = 0; n < kLoads; ++n) {
      const int64_t at = i + n < count ? i + n : i;
      values[n] = *reinterpret_cast<const T*>(first + at * bytes_apart);
    }
    COUNTERWEIGHT_UNROLL
    for (int n = 0; n < kLoads; ++n) {
      if (i + n < count) f(values[n]);
    }
  }
}

// The exact sum of a column, of the size of one addend.
__device__ void sum_column(const char* first, int64_t bytes_apart,
                           int64_t count, ExactBins<double>& bins) {
  bins.clear();
  int64_t addends = 0;
  for_each_number<double>(first, bytes_apart, count, [&](double x) {
    bins.add(x);
    if (++addends % kMostAddends == 0) bins.carry();
  });
  bins.carry();
}

__device__ double sum_whole(const char* first, int64_t bytes_apart,
                            int64_t count) {
  double sum = 0.0;
  for_each_number<double>(first, bytes_apart, count,
                          [&](double x) { sum += x; });
  return sum;
}

// Replaces the column in the first record by that of all.
__device__ void join_column(ColumnOp op, char* first, int64_t bytes_apart,
                            int64_t count) {
  if (op == ColumnOp::kSum) {
    ExactBins<double> bins;
    sum_column(first, bytes_apart, count, bins);
    *reinterpret_cast<double*>(first) = bins.take();
  } else if (op == ColumnOp::kWhole) {
    *reinterpret_cast<double*>(first) = sum_whole(first, bytes_apart, count);
  } else if (op == ColumnOp::kFirst) {
    int64_t least = kNoBadToken;
    for_each_number<int64_t>(first, bytes_apart, count,
                             [&](int64_t x) { least = x < least ? x : least; });
    *reinterpret_cast<int64_t*>(first) = least;
  } else {
    const bool is_low = op == ColumnOp::kFloatLow;
    float extremum = is_low ? __builtin_inff() : -__builtin_inff();
    for_each_number<float>(first, bytes_apart, count, [&](float x) {
      extremum = (is_low ? x < extremum : x > extremum) ? x : extremum;
    });
    *reinterpret_cast<float*>(first) = extremum;
  }
}

// Adds the column of up to kMostAddends records to its totals.
__device__ void add_column(ColumnOp op, const char* first, int64_t bytes_apart,
                           int count, double* totals) {
  if (op == ColumnOp::kSum) {
    ExactBins<double> bins;
    sum_column(first, bytes_apart, count, bins);
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kBins; ++k) {
      if (bins.low[k] != 0.0) atomicAdd(&totals[k], bins.low[k]);
    }
    if (!bins.has_high) return;
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < kHighBins; ++k) {
      if (bins.high[k] != 0.0) atomicAdd(&totals[kBins + k], bins.high[k]);
    }
  } else if (op == ColumnOp::kWhole) {
    const double sum = sum_whole(first, bytes_apart, count);
    if (sum != 0.0) atomicAdd(totals, sum);
  } else {
    uint64_t most = 0;
    for (int i = 0; i < count; ++i) {
      const uint64_t key = key_of(op, first + i * bytes_apart);
      most = key > most ? key : most;
    }
    atomicMax(reinterpret_cast<unsigned long long*>(totals),
              static_cast<unsigned long long>(most));
  }
}

// A warp for each row and 32 columns.
__global__ void add_segments_kernel(const __grid_constant__ RecordColumns
                                        columns,
                                    const __grid_constant__ SegmentsToAdd job) {
  const int64_t thread =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t warp = thread / kLanes;
  const int column_blocks = (columns.count + kLanes - 1) / kLanes;
  const int64_t row = warp / column_blocks;
  const int column =
      static_cast<int>(warp % column_blocks * kLanes + thread % kLanes);
  if (row >= job.rows || column >= columns.count) return;
  if (job.states != nullptr && job.states[row].fired == 0) return;
  const int64_t begin = job.row_segments[row];
  const int64_t count = job.row_segments[row + 1] - begin;
  if (count < 2) return;
  join_column(columns.op[column],
              job.records + begin * job.record_bytes + columns.offset[column],
              job.record_bytes, count);
}

// A warp for each 32 rows.
__global__ void add_rows_kernel(const __grid_constant__ RecordColumns columns,
                                const __grid_constant__ RowsToAdd job) {
  const int64_t thread =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t first = thread / kLanes * kLanes;
  if (first >= job.rows) return;
  const int64_t left = job.rows - first;
  const int count = left < kLanes ? static_cast<int>(left) : kLanes;
  const char* const records = job.records + first * job.record_bytes;
  for (int c = static_cast<int>(thread % kLanes); c < columns.count;
       c += kLanes) {
    add_column(columns.op[c], records + columns.offset[c], job.record_bytes,
               count, job.totals + columns.total[c]);
  }
}

// Makes room for more addends, a thread for each column.
__global__ void carry_kernel(const __grid_constant__ RecordColumns columns,
                             double* totals) {
  const auto column =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns.count || columns.op[column] != ColumnOp::kSum) return;
  double* const own = totals + columns.total[column];
  ExactBins<double> bins;
  load_bins(own, bins);
  bins.carry();
  store_bins(bins, own);
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_ADD_COLUMNS_CUH_
