// Averages of sums for the metrics of a batch.
#ifndef COUNTERWEIGHT_KERNELS_AVERAGES_H_
#define COUNTERWEIGHT_KERNELS_AVERAGES_H_

#include <cstdint>

namespace counterweight::kernels {

// Returns NaN if there is nothing to average: 0 / 0.
inline double Mean(double sum, int64_t count) {
  return sum / static_cast<double>(count);
}

inline double Fraction(int64_t part, int64_t whole) {
  return Mean(static_cast<double>(part), whole);
}

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_AVERAGES_H_
