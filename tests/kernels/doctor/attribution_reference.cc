#include "tests/kernels/doctor/attribution_reference.h"

#include <cmath>

namespace counterweight::kernels::doctor {
namespace {

long double K3(long double l) { return std::expm1(l) - l; }

// The number of edges that `x` has passed.
template <class Passes>
int IndexOf(std::initializer_list<float> edges, Passes passes) {
  int index = 0;
  for (const float edge : edges) index += passes(edge);
  return index;
}

// 0, 1, 2-3, 4-7 ...
int Log2Bucket(int64_t n) {
  int bits = 0;
  for (; n > 0; n /= 2) ++bits;
  return bits;
}

}  // namespace

ReferenceAttribution Reference(const std::vector<Row>& rows) {
  ReferenceAttribution of;
  for (const Row& row : rows) {
    int64_t place = 0, length = 0;
    for (const uint8_t counts : row.mask) length += counts;
    for (size_t i = 0; i < row.mask.size(); ++i) {
      if (row.mask[i] == 0) continue;
      const float q = row[InputRole::kRollout][i];
      const long double o = row[InputRole::kOld][i];
      const long double c = row[InputRole::kCurrent][i];
      const long double l = c - q;
      of.k3 += K3(l);
      of.kl -= l;
      of.engine_staleness += K3(o - q);
      of.update += K3(c - o);
      of.interaction += std::expm1(o - q) * std::expm1(c - o);
      of.kl_engine_staleness -= o - q;
      of.kl_update -= c - o;
      const int magnitude = IndexOf({0.01f, 0.1f, 0.5f, 1.0f, 2.0f, 4.0f, 8.0f},
                                    [&](float edge) { return -q >= edge; });
      const int log_ratio = IndexOf(
          {-1.0f, -0.3f, -0.1f, -0.03f, -0.01f, 0.01f, 0.03f, 0.1f, 0.3f, 1.0f},
          [&](float edge) { return l > edge; });
      for (ReferenceBucket* bucket :
           {&of.by_magnitude[magnitude], &of.by_position[Log2Bucket(place)],
            &of.by_length[Log2Bucket(length) - 1],
            &of.by_log_ratio[log_ratio]}) {
        ++bucket->tokens;
        bucket->log_ratio += l;
        bucket->k3 += K3(l);
        ++bucket->magnitudes[magnitude];
      }
      ++place;
    }
  }
  return of;
}

}  // namespace counterweight::kernels::doctor
