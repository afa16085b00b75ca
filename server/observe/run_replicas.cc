#include "server/observe/run_replicas.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

constexpr double kOutlier = 3.5;
constexpr double kErrorFactor = 1.1;

// REQUIRES: `numbers` is not empty.
double Median(std::vector<double> numbers) {
  const size_t half = numbers.size() / 2;
  std::sort(numbers.begin(), numbers.end());
  return numbers.size() % 2 == 1 ? numbers[half]
                                 : (numbers[half - 1] + numbers[half]) / 2.0;
}

// A replica's estimate; log_k3 is -infinity without drift.
struct Estimate {
  double log_k3;
  double error;
};

// The estimate of a replica with the mean `k3` of its batches.
template <class Batches>
Estimate EstimateOf(const Batches& batches, double tokens, double k3) {
  const auto m = static_cast<double>(batches.size());
  double squares = 0.0;
  for (const auto& batch : batches) {
    const double residual = batch.k3 - k3 * batch.tokens;
    squares += residual * residual;
  }
  return {std::log(k3),
          kErrorFactor * std::sqrt(m * squares / (m - 1.0)) / (tokens * k3)};
}

void Compare(const std::vector<Estimate>& estimates, size_t own,
             ReplicaDrift* drift) {
  std::vector<double> logs, errors;
  for (size_t i = 0; i < estimates.size(); ++i) {
    if (i == own) continue;
    logs.push_back(estimates[i].log_k3);
    errors.push_back(estimates[i].error);
  }
  const double median = Median(logs);
  const double error = Median(errors);
  const double of_median = std::clamp(
      std::numbers::pi / 2.0 / static_cast<double>(logs.size()), 0.25, 1.0);
  const double distance = estimates[own].log_k3 - median;
  const double spread = std::sqrt(estimates[own].error * estimates[own].error +
                                  of_median * error * error);
  if (!(spread > 0.0) || !std::isfinite(distance)) return;
  drift->of_others = std::exp(distance);
  drift->z = distance / spread;
}

}  // namespace

bool ReplicaDrift::is_outlier() const { return z > kOutlier; }

void RunReplicas::Add(std::string_view replica, int64_t tokens, double k3) {
  if (replica.empty() || tokens == 0 || !std::isfinite(k3)) return;
  const auto found =
      std::find_if(replicas_.begin(), replicas_.end(),
                   [&](const Replica& each) { return each.name == replica; });
  if (found == replicas_.end()) {
    if (replicas_.size() == kMostReplicas) replicas_.pop_front();
    replicas_.push_back({std::string(replica), {}});
  } else {
    std::rotate(found, found + 1, replicas_.end());
  }
  std::deque<Batch>& batches = replicas_.back().batches;
  if (batches.size() == kMostBatches) batches.pop_front();
  batches.push_back({static_cast<double>(tokens), k3});
}

std::vector<ReplicaDrift> RunReplicas::Drifts() const {
  if (replicas_.size() < 2) return {};
  std::vector<ReplicaDrift> drifts;
  std::vector<Estimate> estimates;
  std::vector<size_t> compared;  // indices of drifts
  double all = 0.0;
  for (const Replica& replica : replicas_) {
    ReplicaDrift drift{.name = replica.name,
                       .batches = static_cast<int64_t>(replica.batches.size())};
    double sum = 0.0;
    for (const Batch& batch : replica.batches) {
      drift.tokens += batch.tokens;
      sum += batch.k3;
    }
    drift.k3 = sum / drift.tokens;
    drift.share = sum;
    all += sum;
    if (replica.batches.size() >= kFewestBatches && drift.k3 > 0.0) {
      compared.push_back(drifts.size());
      estimates.push_back(EstimateOf(replica.batches, drift.tokens, drift.k3));
    }
    drifts.push_back(std::move(drift));
  }
  for (ReplicaDrift& drift : drifts) {
    drift.share = all > 0.0 ? drift.share / all : 0.0;
  }
  if (compared.size() >= 2) {
    for (size_t i = 0; i < compared.size(); ++i) {
      Compare(estimates, i, &drifts[compared[i]]);
    }
  }
  std::sort(drifts.begin(), drifts.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return drifts;
}

std::string SentenceOf(const std::vector<ReplicaDrift>& drifts) {
  std::string sentence;
  for (const ReplicaDrift& drift : drifts) {
    if (!drift.is_outlier()) continue;
    sentence += fmt::format(
        "{}replica {} drifts {:.3g} x the others (z {:.1f}), with {:.3g} % of "
        "the k3",
        sentence.empty() ? "" : "; ", drift.name, drift.of_others, drift.z,
        100.0 * drift.share);
  }
  return sentence;
}

}  // namespace counterweight::server
