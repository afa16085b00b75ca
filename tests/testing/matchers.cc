#include "tests/testing/matchers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "tests/testing/sums_fields.h"

namespace counterweight::kernels {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

// float32 addends, each within a few roundings of its formula and carrying the
// rounding of a log ratio of up to 60 nats.
constexpr double kFloat32Tolerance = 2e-5;
// A number may exceed float32 while the reference's does not.
constexpr double kFloat32Max = 3.4e38;
// Below it float32 has no full precision.
constexpr double kFloat32Min = 1.2e-38;

bool SameBits(double a, double b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

bool Near(double actual, double expected, double tolerance) {
  if (actual == expected) return true;
  if (actual > kFloat32Max && expected > kFloat32Max) return true;
  return std::fabs(actual - expected) <= tolerance;
}

AssertionResult Differ(const std::string& what, double a, double b) {
  return AssertionFailure()
         << what << ": " << std::hexfloat << a << " and " << b
         << std::defaultfloat << " (" << a << " and " << b << ")";
}

std::string At(std::string what, size_t i) {
  what += '[';
  what += std::to_string(i);
  what += ']';
  return what;
}

template <class T>
AssertionResult SameBytes(const char* what, const std::vector<T>& a,
                          const std::vector<T>& b) {
  if (a.size() != b.size())
    return AssertionFailure() << what << ": sizes differ";
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0)
      return Differ(At(what, i), a[i], b[i]);
  return AssertionSuccess();
}

double Tolerance(const SumsField& expected, double magnitude) {
  switch (expected.fold) {
    case Fold::kCount:
      return 0.0;
    case Fold::kSum:
      return kFloat32Tolerance * magnitude + kFloat32Min;
    case Fold::kMin:
    case Fold::kMax:
    case Fold::kNone:
      // Means of float32 sums can cancel down to the rounding of their addends.
      return kFloat32Tolerance * std::fabs(expected.value) + 1e-7;
  }
  return 0.0;
}

}  // namespace

AssertionResult SameOutputs(const Corrected& a, const Corrected& b) {
  AssertionResult same = SameBytes("weights", a.weights, b.weights);
  if (same) same = SameBytes("keep_mask", a.keep_mask, b.keep_mask);
  if (same) same = SameBytes("token_reasons", a.token_reasons, b.token_reasons);
  if (same)
    same =
        SameBytes("sequence_reasons", a.sequence_reasons, b.sequence_reasons);
  if (same) same = SameBytes("gradient", a.gradient, b.gradient);
  return same;
}

AssertionResult SameSums(const BatchSums& a, const BatchSums& b,
                         const char* skip) {
  const std::vector<SumsField> x = Fields(a), y = Fields(b);
  for (size_t i = 0; i < x.size(); ++i)
    if (!SameBits(x[i].value, y[i].value) && x[i].name != skip)
      return Differ(x[i].name, x[i].value, y[i].value);
  return AssertionSuccess();
}

AssertionResult SumsAgree(const BatchSums& a, const BatchSums& b,
                          const BatchSums& magnitudes, double relative) {
  const std::vector<SumsField> x = Fields(a), y = Fields(b),
                               size = Fields(magnitudes);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool sum = x[i].fold == Fold::kSum || x[i].fold == Fold::kNone;
    const double scale = x[i].fold == Fold::kNone ? y[i].value : size[i].value;
    if (!Near(x[i].value, y[i].value, sum ? relative * scale : 0.0))
      return Differ(x[i].name, x[i].value, y[i].value);
  }
  return AssertionSuccess();
}

AssertionResult MatchesReference(const CorrectionSpec& spec,
                                 const Corrected& corrected,
                                 const ReferenceResult& reference) {
  AssertionResult same =
      SameBytes("keep_mask", corrected.keep_mask, reference.keep_mask);
  if (same)
    same = SameBytes("token_reasons", corrected.token_reasons,
                     reference.token_reasons);
  if (same)
    same = SameBytes("sequence_reasons", corrected.sequence_reasons,
                     reference.sequence_reasons);
  if (!same) return same;
  for (size_t i = 0; i < reference.weights.size(); ++i) {
    const double expected = reference.weights[i];
    if (!Near(corrected.weights[i], expected,
              kFloat32Tolerance * expected + kFloat32Min))
      return Differ(At("weights", i), corrected.weights[i], expected);
  }
  for (size_t i = 0; i < reference.gradient.size(); ++i) {
    const double expected = reference.gradient[i];
    if (!Near(corrected.gradient[i], expected,
              kFloat32Tolerance * reference.gradient_size[i] + kFloat32Min))
      return Differ(At("gradient", i), corrected.gradient[i], expected);
  }
  const std::vector<SumsField> actual =
      Fields(corrected.sums(), spec.num_rules);
  const std::vector<SumsField> expected =
      Fields(reference.sums, spec.num_rules);
  const std::vector<SumsField> size =
      Fields(reference.magnitudes, spec.num_rules);
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool weight = expected[i].name.starts_with("weight.");
    if (weight && spec.weight.level == Level::kNone) continue;
    if (!Near(actual[i].value, expected[i].value,
              Tolerance(expected[i], size[i].value)))
      return Differ(expected[i].name, actual[i].value, expected[i].value);
  }
  return AssertionSuccess();
}

std::vector<SpecField> FieldsOf(const CorrectionSpec& spec) {
  std::vector<SpecField> fields;
  for (const SpecViolation& violation : Validate(spec)) {
    EXPECT_FALSE(violation.reason.empty());
    fields.push_back(violation.field);
  }
  return fields;
}

std::vector<double> Combine(const std::vector<BatchSums>& parts) {
  std::vector<double> combined;
  for (const SumsField& field : Fields(parts.front()))
    combined.push_back(field.value);
  for (size_t part = 1; part < parts.size(); ++part) {
    const std::vector<SumsField> fields = Fields(parts[part]);
    for (size_t i = 0; i < fields.size(); ++i) {
      const double x = fields[i].value;
      if (fields[i].fold == Fold::kMin) combined[i] = std::min(combined[i], x);
      if (fields[i].fold == Fold::kMax) combined[i] = std::max(combined[i], x);
      if (fields[i].fold == Fold::kSum || fields[i].fold == Fold::kCount)
        combined[i] += x;
    }
  }
  return combined;
}

AssertionResult CombinesTo(const std::vector<BatchSums>& parts,
                           const BatchSums& whole, const BatchSums& magnitudes,
                           double relative) {
  const std::vector<double> combined = Combine(parts);
  const std::vector<SumsField> fields = Fields(whole),
                               size = Fields(magnitudes);
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].fold == Fold::kNone) continue;
    const double tolerance =
        fields[i].fold == Fold::kSum ? relative * size[i].value : 0.0;
    if (!Near(combined[i], fields[i].value, tolerance))
      return Differ(fields[i].name, combined[i], fields[i].value);
  }
  return AssertionSuccess();
}

}  // namespace counterweight::kernels
