#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/log_ratio.h"
#include "kernels/math/bits.h"
#include "kernels/math/exp.h"
#include "kernels/math/log.h"
#include "kernels/tile/tile.h"

namespace counterweight::kernels {
namespace {

// Every 2^12-th float32: all exponents and both signs.
template <class F>
void ForManyFloats(F f) {
  constexpr uint32_t kStride = 4096;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += kStride) {
    const float x = float_of(static_cast<uint32_t>(bits));
    if (std::isfinite(x)) f(x);
  }
}

TEST(ExpTerms, AreWithinTwoRoundingsOfFloat64) {
  constexpr double kTwoUlp = 0x1p-22;
  ForManyFloats([](float l) {
    const double exact = l;
    if (exact < -80.0 || exact > 88.0) return;
    const ExpTerms terms = exp_terms(l);
    EXPECT_NEAR(terms.exp / std::exp(exact), 1.0, kTwoUlp) << l;
    // k3 of less than 2^-126 has too few bits to compare.
    if (std::fabs(exact) < 1e-18) return;
    EXPECT_NEAR(terms.expm1 / std::expm1(exact), 1.0, kTwoUlp) << l;
    // expm1(l) - l cancels in float64 for small l.
    const double k3 =
        std::fabs(exact) < 1e-2
            ? exact * exact * (1.0 / 2 + exact * (1.0 / 6 + exact / 24))
            : std::expm1(exact) - exact;
    EXPECT_NEAR(terms.k3 / k3, 1.0, 1e-5) << l;
  });
}

TEST(ExpTerms, K3IsNeverNegative) {
  ForManyFloats([](float l) { EXPECT_GE(exp_terms(l).k3, 0.0f) << l; });
}

TEST(ExpTerms, KnownAnswers) {
  EXPECT_EQ(exp_terms(0.0f).exp, 1.0f);
  EXPECT_EQ(exp_terms(0.0f).expm1, 0.0f);
  EXPECT_EQ(exp_terms(0.0f).k3, 0.0f);
  EXPECT_EQ(exp_terms(-1000.0f).exp, 0.0f);
  EXPECT_EQ(exp_terms(-1000.0f).k3, 999.0f);
  EXPECT_EQ(exp_terms(1000.0f).exp, std::numeric_limits<float>::infinity());
}

TEST(LogTerms, AreWithinThreeRoundingsOfFloat64) {
  constexpr double kThreeRoundings = 0x1.8p-23;
  ForManyFloats([](float x) {
    if (x < 0x1p-126f) return;
    const double exact = std::log(double{x});
    const double got = double{log_terms(splat(x))[0]};
    EXPECT_NEAR(got, exact, kThreeRoundings * std::fabs(exact)) << x;
  });
  // Where log is small.
  for (int i = -4096; i <= 4096; ++i) {
    const float x = 1.0f + static_cast<float>(i) * 0x1p-22f;
    const double exact = std::log(double{x});
    EXPECT_NEAR(double{log_terms(splat(x))[0]}, exact,
                kThreeRoundings * std::fabs(exact))
        << x;
  }
}

TEST(Exp64, IsWithinTwoRoundings) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(-700.0, 700.0);
  for (int i = 0; i < 100'000; ++i) {
    const double x = uniform(random);
    EXPECT_NEAR(exp64(x) / std::exp(x), 1.0, 0x1p-51) << x;
    EXPECT_NEAR(expm1_64(x * 1e-5) / std::expm1(x * 1e-5), 1.0, 0x1p-49) << x;
  }
}

TEST(Exp64, IsTheSameInEveryLane) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> xs = {0.0,     -0.0,      1e-300,     709.78, 709.79,
                            -708.4,  -745.1,    -746.,      800.0,  -1e9,
                            0x1p-60, kInfinity, -kInfinity, kNan};
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> uniform(-760.0, 720.0);
  for (int i = 0; i < 100'000; ++i) xs.push_back(uniform(random));
  for (size_t first = 0; first + kWideLanes <= xs.size(); ++first) {
    const ExpTerms64Of<WideVec> terms = exp_terms64(load<WideVec>(&xs[first]));
    for (int i = 0; i < kWideLanes; ++i) {
      const double x = xs[first + static_cast<size_t>(i)];
      const ExpTerms64 one = exp_terms64(x);
      EXPECT_EQ(bits_of(terms.exp[i]), bits_of(one.exp)) << x;
      EXPECT_EQ(bits_of(terms.expm1[i]), bits_of(one.expm1)) << x;
    }
  }
  EXPECT_EQ(exp64(0.0), 1.0);
  EXPECT_EQ(exp64(-kInfinity), 0.0);
  EXPECT_EQ(exp64(kInfinity), kInfinity);
  EXPECT_EQ(exp64(-745.0), 0x1p-1074);
  EXPECT_EQ(bits_of(expm1_64(1e-300)), bits_of(1e-300));
  EXPECT_TRUE(std::isnan(exp64(kNan)));
}

TEST(LogRatio, IsWithinOneRounding) {
  for (double ratio : {0.2, 0.5, 0.8, 0.99, 0.999, 1.001, 1.01, 1.4, 2.0, 3.0,
                       5.0, 10.0, 100.0, 1e-4, 1e-300, 5e-324}) {
    EXPECT_NEAR(LogRatio(ratio) / std::log(ratio), 1.0, 0x1p-52) << ratio;
  }
  EXPECT_EQ(LogRatio(1.0), 0.0);
  EXPECT_EQ(LogRatio(0.0), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(LogRatio(-1.0)));
}

TEST(Halves, AreUpcastExactly) {
  EXPECT_EQ(from_f16(0x3c00), 1.0f);
  EXPECT_EQ(from_f16(0xc000), -2.0f);
  EXPECT_EQ(from_f16(0x0001), 0x1p-24f);  // the least denormal
  EXPECT_EQ(from_f16(0x7bff), 65504.0f);
  EXPECT_EQ(from_f16(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(from_f16(0x7e00)));
  EXPECT_EQ(from_bf16(0x3f80), 1.0f);
  EXPECT_EQ(from_bf16(0x0001), 0x1p-133f);
}

}  // namespace
}  // namespace counterweight::kernels
