#include <cmath>
#include <cstdint>
#include <string>

#include "kernels/averages.h"
#include "kernels/doctor/attribution.h"
#include "kernels/doctor/digits.h"

namespace counterweight::kernels::doctor {
namespace {

std::string WholePercent(double part, double whole) {
  const double percent = std::round(100.0 * part / whole);
  // Shares of -0.4 % are 0 %.
  return std::to_string(static_cast<int64_t>(percent)) + " %";
}

// "of current over rollout"
std::string RatioText(const Attribution& of) {
  const auto name = [](InputRole role) {
    if (role == InputRole::kRollout) return "rollout";
    return role == InputRole::kOld ? "old" : "current";
  };
  return std::string("of ") + name(of.numerator) + " over " +
         name(of.denominator);
}

std::string EngineAndStaleness(const Causes& causes) {
  if (!(causes.k3_engine == causes.k3_engine)) {
    return WholePercent(causes.k3_engine_staleness, causes.k3) +
           " engine and staleness";
  }
  return WholePercent(causes.k3_engine, causes.k3) + " engine, " +
         WholePercent(causes.k3_engine_staleness - causes.k3_engine,
                      causes.k3) +
         " staleness";
}

std::string CausesOf(const Attribution& of) {
  const Causes& causes = of.causes;
  const bool has_first =
      causes.k3_engine_staleness == causes.k3_engine_staleness;
  const bool has_update = causes.k3_update == causes.k3_update;
  if (has_first && has_update) {
    return " = " + EngineAndStaleness(causes) + ", " +
           WholePercent(causes.k3_update, causes.k3) + " update, " +
           WholePercent(causes.k3_interaction, causes.k3) + " both together";
  }
  const std::string ratio = " " + RatioText(of);
  if (has_first) {
    return ratio + " = " + EngineAndStaleness(causes) +
           "; the update needs current_log_probs";
  }
  if (has_update) {
    return ratio + " = the update alone; the rest needs rollout_log_probs";
  }
  return ratio + "; its causes need old_log_probs";
}

// Tokens of low probability, where most of the drift lies.
std::string Unlikely(const Attribution& of) {
  constexpr double kBelow = 1.0;
  int64_t tokens = 0;
  double k3 = 0.0;
  for (const Bucket& bucket : of.by_magnitude) {
    if (bucket.first < kBelow) continue;
    tokens += bucket.tokens;
    k3 += bucket.k3;
  }
  return WholePercent(k3, of.causes.k3) + " of it on tokens below -1 nat (" +
         WholePercent(Fraction(tokens, of.tokens), 1.0) + " of tokens)";
}

std::string Heaviest(const Attribution& of) {
  const auto count = static_cast<int64_t>(of.heaviest.size());
  if (count >= of.sequences) return "";
  double k3 = 0.0;
  for (const HeavySequence& each : of.heaviest) k3 += each.k3;
  return "; " + std::to_string(count) + " of " + std::to_string(of.sequences) +
         " sequences carry " + WholePercent(k3, of.causes.k3);
}

}  // namespace

std::string Sentence(const Attribution& attribution) {
  if (!(attribution.causes.k3 > 0.0)) {
    return "k3 0 " + RatioText(attribution) + ": the log-probs are equal.";
  }
  return "k3 " + Digits(Mean(attribution.causes.k3, attribution.tokens), 2) +
         CausesOf(attribution) + ". " + Unlikely(attribution) +
         Heaviest(attribution) + ".";
}

}  // namespace counterweight::kernels::doctor
