#include "tests/testing/reference_inputs.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace counterweight::kernels {
namespace {

// sign * 1.fraction * 2^(exponent - bias), and 0.fraction * 2^(1 - bias).
double DecodeHalf(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int all_ones = (1 << exponent_bits) - 1;
  const int exponent = (bits >> fraction_bits) & all_ones;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == all_ones) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const double significand = std::ldexp(fraction, -fraction_bits);
  if (exponent == 0) return sign * std::ldexp(significand, 1 - bias);
  return sign * std::ldexp(1.0 + significand, exponent - bias);
}

struct Reads {
  std::set<RatioSource> sources;
  std::set<InputRole> roles;
};

Reads WhatIsRead(const CorrectionSpec& spec) {
  Reads reads;
  reads.sources.insert(spec.drift_source);
  if (spec.weight.level != Level::kNone)
    reads.sources.insert(spec.weight.source);
  for (int r = 0; r < spec.num_rules; ++r) {
    reads.sources.insert(spec.rules[r].source);
    if (spec.rules[r].condition != Condition::kAlways)
      reads.roles.insert(InputRole::kAdvantages);
  }
  const LossSpec& loss = spec.loss;
  if (loss.surrogate != Surrogate::kNone) {
    reads.roles.merge(RolesOfLoss(loss));
    reads.sources.insert(loss.metrics_source);
    if (HasRatio(loss.surrogate)) reads.sources.insert(loss.source);
    if (loss.kl.estimator != KlEstimator::kNone)
      reads.sources.insert(loss.kl.source);
    if (loss.kl.gradient_ratio_cap > 0.0)
      reads.sources.insert(RatioSource::kCurrentOld);
    if (loss.kl.has_own_ratio) reads.sources.insert(loss.kl.ratio_source);
  }
  for (RatioSource source : reads.sources) {
    reads.roles.insert(RolesOf(source).numerator);
    reads.roles.insert(RolesOf(source).denominator);
  }
  return reads;
}

// Returns the non-finite number at one position, if any.
std::optional<ReferenceNonFinite> NonFiniteAt(const Reads& reads,
                                              const ReferenceRow& row,
                                              int64_t t) {
  for (InputRole role : reads.roles)
    if (!std::isfinite(row.Value(role, t)))
      return ReferenceNonFinite{role, 0, t, true};
  std::set<InputRole> numerators;
  for (RatioSource source : reads.sources) {
    const auto difference = static_cast<float>(row.LogRatio(source, t));
    if (!std::isfinite(difference))
      numerators.insert(RolesOf(source).numerator);
  }
  if (numerators.empty()) return std::nullopt;
  return ReferenceNonFinite{*numerators.begin(), 0, t, false};
}

// Returns a neutralised token's advantage: unchanged for a loss if the log-prob
// of the gradient is a number, else 0.
double NeutralAdvantage(const CorrectionSpec& spec, const ReferenceRow& row,
                        int64_t t) {
  const double advantage = row.Value(InputRole::kAdvantages, t);
  const bool keeps = spec.loss.surrogate != Surrogate::kNone &&
                     std::isfinite(advantage) &&
                     std::isfinite(row.Value(InputRole::kCurrent, t));
  return keeps ? advantage : 0.0;
}

}  // namespace

SourceRoles RolesOf(RatioSource source) {
  switch (source) {
    case RatioSource::kOldRollout:
      return {InputRole::kOld, InputRole::kRollout};
    case RatioSource::kCurrentRollout:
      return {InputRole::kCurrent, InputRole::kRollout};
    case RatioSource::kCurrentOld:
      return {InputRole::kCurrent, InputRole::kOld};
    case RatioSource::kCurrentSelf:
      return {InputRole::kCurrent, InputRole::kCurrent};
    case RatioSource::kRefCurrent:
      return {InputRole::kRef, InputRole::kCurrent};
    case RatioSource::kMeans:
    case RatioSource::kOtherMeans:
      break;
  }
  return {};
}

std::set<InputRole> RolesOfLoss(const LossSpec& loss) {
  std::set<InputRole> roles = {InputRole::kCurrent, InputRole::kAdvantages};
  if (HasRatio(loss.surrogate)) roles.insert(RolesOf(loss.source).denominator);
  if (loss.kl.estimator != KlEstimator::kNone) {
    roles.insert(RolesOf(loss.kl.source).numerator);
    roles.insert(RolesOf(loss.kl.source).denominator);
  }
  return roles;
}

double ReferenceRow::LogRatio(RatioSource source, int64_t t) const {
  const SourceRoles roles = RolesOf(source);
  const bool is_unknown = !unknown.empty() && unknown[t];
  if (is_unknown && roles.denominator == InputRole::kRollout) return 0.0;
  return Value(roles.numerator, t) - Value(roles.denominator, t);
}

double DecodeElement(const TensorView& tensor, int64_t position) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.data);
  if (tensor.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes + 4 * position, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes + 2 * position, 2);
  return tensor.dtype == DType::kBF16 ? DecodeHalf(bits, 8, 7)
                                      : DecodeHalf(bits, 5, 10);
}

ReferenceInputs ReadInputs(const CorrectionSpec& spec, const Batch& batch) {
  const Reads reads = WhatIsRead(spec);
  ReferenceInputs inputs;
  for (int64_t i = 0; i < batch.num_sequences; ++i) {
    ReferenceRow row;
    row.begin = batch.offsets[i];
    const int64_t length = batch.offsets[i + 1] - row.begin;
    row.counts.assign(length, 0);
    row.dropped.assign(length, 0);
    row.neutralized.assign(length, 0);
    row.unknown.assign(length, 0);
    for (std::vector<double>& values : row.values) values.assign(length, 0.0);
    for (int64_t t = 0; t < length; ++t) {
      if (batch.response_mask[row.begin + t] == 0) continue;
      row.counts[t] = 1;
      for (InputRole role : reads.roles)
        row.values[static_cast<int>(role)][t] =
            DecodeElement(batch.tensor(role), row.begin + t);
      double& rollout = row.values[static_cast<int>(InputRole::kRollout)][t];
      if (spec.unknown_rollout && std::isnan(rollout) &&
          spec.non_finite == NonFinitePolicy::kReject) {
        const double other = row.Value(RolesOf(spec.drift_source).numerator, t);
        rollout = std::isfinite(other) ? other : 0.0;
        row.unknown[t] = 1;
      }
      std::optional<ReferenceNonFinite> bad = NonFiniteAt(reads, row, t);
      if (!bad) continue;
      bad->sequence = i;
      if (!inputs.first_non_finite) inputs.first_non_finite = bad;
      const double advantage = NeutralAdvantage(spec, row, t);
      for (std::vector<double>& values : row.values) values[t] = 0.0;
      row.values[static_cast<int>(InputRole::kAdvantages)][t] = advantage;
      const bool drop = spec.non_finite == NonFinitePolicy::kDrop;
      (drop ? row.dropped : row.neutralized)[t] = 1;
      row.counts[t] = !drop;
    }
    inputs.rows.push_back(std::move(row));
  }
  return inputs;
}

}  // namespace counterweight::kernels
