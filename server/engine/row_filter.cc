#include "server/engine/row_filter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "kernels/doctor/tensor_reader.h"
#include "kernels/tile/tile_state.h"
#include "server/engine/corrected_tokens.h"

namespace counterweight::server {
namespace {

// The source's log ratios of a row.
class LogRatios {
 public:
  LogRatios(const RowFilter& filter, const kernels::Batch& batch)
      : numerator_(batch.tensors[kernels::numerator(filter.source)]),
        denominator_(batch.tensors[kernels::denominator(filter.source)]) {}

  std::span<const double> Read(int64_t begin, int64_t end) {
    const auto n = static_cast<size_t>(end - begin);
    above_.resize(n);
    below_.resize(n);
    differences_.resize(n);
    kernels::doctor::Read(numerator_, begin, end - begin, above_.data());
    kernels::doctor::Read(denominator_, begin, end - begin, below_.data());
    for (size_t i = 0; i < n; ++i) {
      differences_[i] = double{above_[i]} - double{below_[i]};
    }
    return differences_;
  }

 private:
  const kernels::TensorView& numerator_;
  const kernels::TensorView& denominator_;
  std::vector<float> above_, below_;
  RowNumbers differences_;
};

}  // namespace

uint32_t TensorsOf(const RowFilter& filter) {
  return uint32_t{1} << kernels::numerator(filter.source) |
         uint32_t{1} << kernels::denominator(filter.source);
}

std::optional<RowErrors> FilterRows(const RowFilter& filter,
                                    const kernels::Batch& batch,
                                    kernels::NonFinitePolicy policy,
                                    const kernels::StopRequest& stop,
                                    uint8_t* mask) {
  RowErrors errors;
  LogRatios ratios(filter, batch);
  RowNumbers sizes, exp, expm1;
  for (int64_t row = 0; row < batch.num_sequences; ++row) {
    if (stop && stop()) return std::nullopt;
    const int64_t begin = batch.offsets[row], end = batch.offsets[row + 1];
    std::copy(batch.response_mask + begin, batch.response_mask + end,
              mask + begin);
    sizes.clear();
    bool is_finite = true;
    const std::span<const double> of_row = ratios.Read(begin, end);
    for (size_t i = 0; i < of_row.size(); ++i) {
      if (mask[begin + static_cast<int64_t>(i)] == 0) continue;
      if (std::isfinite(of_row[i])) {
        sizes.push_back(std::fabs(of_row[i]));
      } else {
        is_finite = false;
      }
    }
    if (sizes.empty()) continue;
    Exponentials(sizes, &exp, &expm1);
    double sum = 0.0;
    for (const double x : exp) sum += x;
    const double error = sum / static_cast<double>(exp.size());
    const bool is_refused =
        !is_finite && policy == kernels::NonFinitePolicy::kReject;
    errors.all.push_back(error);
    if (error <= filter.upper || is_refused) {
      errors.kept.push_back(error);
    } else {
      std::fill(mask + begin, mask + end, uint8_t{0});
    }
  }
  return errors;
}

}  // namespace counterweight::server
