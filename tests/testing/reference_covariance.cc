#include "tests/testing/reference_covariance.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "tests/testing/reference_philox.h"

namespace counterweight::kernels {
namespace {

struct Candidate {
  size_t row, position;
  double covariance;
  LossPoint* point;
};

// Every token of LossSpec::over with its (A - mean A)(lp - mean lp).
std::vector<Candidate> WithCovariances(std::vector<ReferenceLossRow>& rows) {
  std::vector<Candidate> all;
  double advantage = 0.0, log_prob = 0.0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t t = 0; t < rows[i].points.size(); ++t) {
      if (!rows[i].over[t]) continue;
      all.push_back({i, t, 0.0, &rows[i].points[t]});
      advantage += rows[i].points[t].advantage;
      log_prob += rows[i].points[t].log_prob;
    }
  }
  const auto n = static_cast<double>(all.size());
  for (Candidate& candidate : all)
    candidate.covariance = (candidate.point->advantage - advantage / n) *
                           (candidate.point->log_prob - log_prob / n);
  return all;
}

// Random order of a seed.
uint64_t RankOf(uint64_t seed, const Candidate& candidate) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto words =
      ReferencePhilox({low(candidate.position), low(candidate.position >> 32),
                       low(candidate.row), low(candidate.row >> 32)},
                      {low(seed), low(seed >> 32)});
  return uint64_t{words[1]} << 32 | words[0];
}

// Candidates of CLIP_COV: between the bounds, and not clipped by PPO.
std::vector<Candidate> Between(const LossSpec& loss,
                               const std::vector<Candidate>& all,
                               Margin& margin) {
  LossSpec ppo = loss;
  ppo.surrogate = Surrogate::kPpoClip;
  std::vector<Candidate> between;
  for (const Candidate& candidate : all) {
    LossPoint clamped = *candidate.point;
    clamped.log_ratio = std::clamp(clamped.log_ratio, loss.log_ratio_lower,
                                   loss.log_ratio_upper);
    const bool inside =
        margin.Above(candidate.covariance, loss.covariance_lower) &&
        margin.Below(candidate.covariance, loss.covariance_upper);
    if (inside && !SurrogateSlopeAt(ppo, clamped, margin).events.clipped)
      between.push_back(candidate);
  }
  return between;
}

}  // namespace

void SelectByCovariance(const LossSpec& loss,
                        std::vector<ReferenceLossRow>& rows, Margin& margin) {
  const bool random = loss.surrogate == Surrogate::kClipCov;
  if (!random && loss.surrogate != Surrogate::kKlCov) return;
  std::vector<Candidate> candidates = WithCovariances(rows);
  const auto share = static_cast<size_t>(
      loss.covariance_fraction * static_cast<double>(candidates.size()));
  if (random) candidates = Between(loss, candidates, margin);
  std::sort(candidates.begin(), candidates.end(),
            [&](const Candidate& a, const Candidate& b) {
              const auto key = [&](const Candidate& c) {
                return std::tuple(random ? 0.0 : -c.covariance,
                                  random ? RankOf(loss.seed, c) : 0, c.row,
                                  c.position);
              };
              return key(a) < key(b);
            });
  const size_t count = std::min(std::max(share, size_t{1}), candidates.size());
  for (size_t i = 0; i < count; ++i) candidates[i].point->selected = true;
  if (!random && count > 0 && count < candidates.size())
    margin.Above(candidates[count - 1].covariance,
                 candidates[count].covariance);
}

}  // namespace counterweight::kernels
