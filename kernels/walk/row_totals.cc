#include "kernels/walk/row_totals.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/walk/packed_records.h"

namespace counterweight::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double ExtremumOf(ColumnOp op, uint64_t key) {
  if (op == ColumnOp::kLow) return key == 0 ? kInfinity : -number_of(key);
  return key == 0 ? -kInfinity : number_of(key);
}

double SumOf(const double* totals) {
  ExactBins<double> bins;
  load_bins(totals, bins);
  return bins.take();
}

uint64_t BitsOfColumn(ColumnOp op, const double* totals) {
  uint64_t key = 0;
  std::memcpy(&key, totals, sizeof(key));
  switch (op) {
    case ColumnOp::kSum:
      return bits_of(SumOf(totals));
    case ColumnOp::kWhole:
      return bits_of(totals[0]);
    case ColumnOp::kFirst:
      return static_cast<uint64_t>(kNoBadToken) - key;
    case ColumnOp::kLow:
    case ColumnOp::kHigh:
    case ColumnOp::kFloatLow:
    case ColumnOp::kFloatHigh:
      break;
  }
  return bits_of(ExtremumOf(op, key));
}

}  // namespace

RowRecord RecordOf(const Plan& plan, const double* totals) {
  const RecordColumns columns = ColumnsOfRows(plan);
  alignas(RowRecord) char packed[sizeof(RowRecord)];
  for (int c = 0; c < columns.count; ++c) {
    const uint64_t bits =
        BitsOfColumn(columns.op[c], &totals[columns.total[c]]);
    std::memcpy(&packed[columns.offset[c]], &bits, sizeof(bits));
  }
  RowRecord record{};
  copy_row(plan, row_at(plan, packed, 0), record);
  return record;
}

}  // namespace counterweight::kernels
