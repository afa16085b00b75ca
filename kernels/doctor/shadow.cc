#include "kernels/doctor/shadow.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/doctor/tensor_reader.h"

namespace counterweight::kernels::doctor {
namespace {

constexpr int64_t kShadowChunk = 1024;

double Share(double sum, double of) {
  return of > 0.0 ? sum / of : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

ShadowEffect EffectOf(const Batch& batch, const uint8_t* counted,
                      const float* ratios, const uint8_t* kept,
                      const float* weights) {
  const TensorView& advantages = batch.tensor(InputRole::kAdvantages);
  float chunk[kShadowChunk];
  std::fill_n(chunk, kShadowChunk, 1.0F);
  double distance = 0.0;
  double exact = 0.0;
  double exact_squared = 0.0;
  double squared = 0.0;
  double product = 0.0;
  const int64_t end = batch.offsets[batch.num_sequences];
  for (int64_t at = 0; at < end; at += kShadowChunk) {
    const int64_t n = std::min(kShadowChunk, end - at);
    if (advantages.data != nullptr) Read(advantages, at, n, chunk);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t t = at + i;
      if (counted[t] == 0 || !std::isfinite(chunk[i])) continue;
      const double a = std::abs(static_cast<double>(chunk[i]));
      const double r = static_cast<double>(ratios[t]);
      const double weight =
          weights == nullptr ? 1.0 : static_cast<double>(weights[t]);
      const double w = kept[t] != 0 ? weight : 0.0;
      distance += a * std::abs(r - w);
      exact += a * r;
      exact_squared += (a * r) * (a * r);
      squared += (a * w) * (a * w);
      product += (a * w) * (a * r);
    }
  }
  return {
      .bias = Share(distance, exact),
      .norm_ratio = std::sqrt(Share(squared, exact_squared)),
      .cosine = Share(product, std::sqrt(squared) * std::sqrt(exact_squared))};
}

}  // namespace counterweight::kernels::doctor
