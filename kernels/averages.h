// Averages of sums for the metrics of a batch.
#ifndef COUNTERWEIGHT_KERNELS_AVERAGES_H_
#define COUNTERWEIGHT_KERNELS_AVERAGES_H_

#include <cstdint>
#include <limits>

namespace counterweight::kernels {

// Returns NaN if there is nothing to average. Processors make 0 / 0 a NaN of
// different bits.
inline double Mean(double sum, int64_t count) {
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  return sum / static_cast<double>(count);
}

inline double Fraction(int64_t part, int64_t whole) {
  return Mean(static_cast<double>(part), whole);
}

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_AVERAGES_H_
