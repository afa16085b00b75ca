// Random batches, the same on every machine for the same seed.
#ifndef COUNTERWEIGHT_TESTS_TESTING_RANDOM_ROWS_H_
#define COUNTERWEIGHT_TESTS_TESTING_RANDOM_ROWS_H_

#include <cstdint>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "tests/testing/batch_builder.h"

namespace counterweight::kernels {

// The distributions of <random> differ between libraries, its engines do not.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // A generator for one named number alone, so that a new name changes no other
  // number of the same seed.
  Random(uint64_t seed, std::string_view name);

  double Uniform(double low, double high);
  // Both ends inclusive.
  int64_t Integer(int64_t low, int64_t high);
  double Normal();
  // Makes the seed of a generator for named numbers.
  uint64_t Seed() { return engine_(); }
  bool Chance(double probability) { return Uniform(0, 1) < probability; }

 private:
  std::mt19937_64 engine_;
};

struct RowShape {
  // Standard deviation of log ratios; their mean is -spread^2 / 2, as between
  // two policies that are both normalised.
  double spread = 0.1;
  double masked = 0.2;      // chance that a token does not count
  double non_finite = 0.0;  // chance that a value is NaN or infinite
  // Log-probs above this are mirrored there. Probabilities above 1 matter to
  // DPPO.
  double highest = std::numeric_limits<double>::infinity();
  // Chance that all of a row's advantages are one number, as GRPO's are.
  double one_advantage = 0.0;
};

// All roles.
Row RandomRow(Random& random, int64_t length, const RowShape& shape = {});
std::vector<Row> RandomRows(Random& random, const std::vector<int64_t>& lengths,
                            const RowShape& shape = {});

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_RANDOM_ROWS_H_
