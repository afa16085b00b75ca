#include "kernels/cuda/column_layout.h"

namespace counterweight::kernels {
namespace {

class LayoutBuilder {
 public:
  void Column(int column) {
    const bool count = IsCount(column);
    const int32_t n = count ? layout_.num_counts++ : layout_.num_sums++;
    (count ? layout_.count_columns : layout_.sum_columns)[n] =
        static_cast<uint16_t>(column);
    layout_.offset[column] = static_cast<uint16_t>((n + 1) * kColumnStride);
  }
  void Extremum(int extremum) {
    const int32_t n = layout_.num_extrema++;
    layout_.extrema[n] = static_cast<uint16_t>(extremum);
    layout_.extremum[extremum] = static_cast<uint16_t>((n + 1) * kColumnStride);
  }

  ColumnLayout Build() {
    const auto columns = [](int32_t touched, size_t size) {
      return (touched + 1) * kColumnStride * static_cast<int32_t>(size);
    };
    const int32_t bytes = columns(layout_.num_sums, sizeof(double)) +
                          columns(layout_.num_counts, sizeof(float)) +
                          2 * columns(layout_.num_extrema, sizeof(float));
    constexpr int32_t kAlignment = sizeof(double);
    layout_.bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return layout_;
  }

 private:
  ColumnLayout layout_{};
};

}  // namespace

ColumnLayout MakeColumnLayout(const Plan& plan, bool stats, bool output) {
  LayoutBuilder layout;
  const Needs needs = plan.needs | kNeedsOfLayouts;
  const int rules = plan.spec.num_rules;
  for (int place = 0; place < kNumPlaces; ++place) {
    for (int c = 0; c < kNumColumns; ++c) {
      if (PlaceOf(c) == static_cast<Place>(place) &&
          (IsOfLossPass(c) ? output : stats) && HasColumn(needs, rules, c)) {
        layout.Column(c);
      }
    }
  }
  for (int e = 0; e < kNumExtrema; ++e) {
    if ((IsExtremumOfLossPass(e) ? output : stats) &&
        HasExtremum(needs, rules, e)) {
      layout.Extremum(e);
    }
  }
  return layout.Build();
}

}  // namespace counterweight::kernels
