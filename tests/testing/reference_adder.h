// Adds up a struct of sums and how far their roundings may reach.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_ADDER_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_ADDER_H_

#include <cmath>

#include "kernels/loss_sums.h"

namespace counterweight::kernels {

// A struct of sums and, beside it, the sums of the addends' absolute values.
template <class Sums>
struct Adder {
  Sums& value;
  Sums& magnitude;

  void Add(double Sums::*field, double x) { Add(field, x, std::fabs(x)); }
  // For an addend that is itself a sum of that size, less what cancelled.
  void Add(double Sums::*field, double x, double size) {
    value.*field += x;
    magnitude.*field += size;
  }
  void Extend(Extrema Sums::*field, double x) {
    Extrema& range = value.*field;
    range.min = x < range.min ? x : range.min;
    range.max = x > range.max ? x : range.max;
  }
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_ADDER_H_
