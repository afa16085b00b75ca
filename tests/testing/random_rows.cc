#include "tests/testing/random_rows.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace counterweight::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// FNV-1a (Fowler, Noll, Vo).
uint64_t Hash(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325 ^ seed;
  for (const char c : name) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

Random::Random(uint64_t seed, std::string_view name)
    : engine_(Hash(seed, name)) {}

double Random::Uniform(double low, double high) {
  const double unit = static_cast<double>(engine_() >> 11) * 0x1p-53;
  return low + (high - low) * unit;
}

int64_t Random::Integer(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(engine_() %
                                    static_cast<uint64_t>(high - low + 1));
}

// Box and Muller (1958).
double Random::Normal() {
  const double radius = std::sqrt(-2.0 * std::log1p(-Uniform(0, 1)));
  return radius * std::cos(2.0 * std::numbers::pi * Uniform(0, 1));
}

Row RandomRow(Random& random, int64_t length, const RowShape& shape) {
  Row row;
  const double drift = -shape.spread * shape.spread / 2;
  const auto push = [&](InputRole role, double x) {
    row[role].push_back(static_cast<float>(x));
    return x;
  };
  // A log-prob of a policy that drifted from one that gave `from`.
  const auto drifted = [&](InputRole role, double from) {
    const double x = from + drift + shape.spread * random.Normal();
    return push(role, x > shape.highest ? 2 * shape.highest - x : x);
  };
  const bool one_advantage = random.Chance(shape.one_advantage);
  const double advantage = random.Chance(0.1) ? 0.0 : random.Normal();
  for (int64_t t = 0; t < length; ++t) {
    row.mask.push_back(random.Chance(shape.masked) ? 0 : 1);
    const double rollout =
        push(InputRole::kRollout, random.Uniform(-4.0, -0.01));
    const double old = drifted(InputRole::kOld, rollout);
    const double current = drifted(InputRole::kCurrent, old);
    drifted(InputRole::kRef, current);
    push(InputRole::kAdvantages, one_advantage ? advantage : random.Normal());
    for (std::vector<float>& values : row.values) {
      if (!random.Chance(shape.non_finite)) continue;
      constexpr float kBad[] = {kNaN, kInfinity, -kInfinity};
      values.back() = kBad[random.Integer(0, 2)];
    }
  }
  return row;
}

std::vector<Row> RandomRows(Random& random, const std::vector<int64_t>& lengths,
                            const RowShape& shape) {
  std::vector<Row> rows;
  for (int64_t length : lengths)
    rows.push_back(RandomRow(random, length, shape));
  return rows;
}

}  // namespace counterweight::kernels
