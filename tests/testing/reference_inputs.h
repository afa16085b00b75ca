// The reference's inputs: decoded, with the non-finite policy applied.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_INPUTS_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_INPUTS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "kernels/batch.h"
#include "kernels/spec.h"

namespace counterweight::kernels {

using Mask = std::vector<uint8_t>;

struct SourceRoles {
  InputRole numerator;
  InputRole denominator;
};

SourceRoles RolesOf(RatioSource source);

// Returns the roles that a loss reads.
std::set<InputRole> RolesOfLoss(const LossSpec& loss);

// One sequence. Vectors are [length].
struct ReferenceRow {
  int64_t begin = 0;  // its first position in the batch
  // The factor of prescales_advantages, also of masked advantages.
  double advantage_scale = 1.0;
  // response_mask without the tokens that policy DROP removed.
  Mask counts;
  // Tokens that policy DROP removed, tokens that policy NEUTRALIZE changed.
  Mask dropped, neutralized;
  // Tokens with a permitted NaN as rollout log-prob: the drift's numerator
  // replaces it.
  Mask unknown;
  // By role; 0 where the token does not count, was neutralised (but see
  // NeutralAdvantage), or the spec does not read the role.
  std::array<std::vector<double>, kNumInputRoles> values;

  int64_t size() const { return static_cast<int64_t>(counts.size()); }
  double LogRatio(RatioSource source, int64_t t) const;
  double Value(InputRole role, int64_t t) const {
    return values[static_cast<int>(role)][t];
  }
};

struct ReferenceNonFinite {
  InputRole role;
  int64_t sequence;
  int64_t token;
  bool input;
};

struct ReferenceInputs {
  std::vector<ReferenceRow> rows;
  // The first non-finite number in row-major order.
  std::optional<ReferenceNonFinite> first_non_finite;
};

// One little-endian element, exactly.
double DecodeElement(const TensorView& tensor, int64_t position);

ReferenceInputs ReadInputs(const CorrectionSpec& spec, const Batch& batch);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_INPUTS_H_
