// Drift of a run's batches by the replica that sent them.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_RUN_REPLICAS_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_RUN_REPLICAS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace counterweight::server {

// A replica's part in the drift of a run's newest batches.
struct ReplicaDrift {
  std::string name;
  int64_t batches = 0;
  double tokens = 0.0;
  // Mean over its tokens, nats.
  double k3 = 0.0;
  // Its part of the sum of k3 over all replicas, in [0, 1].
  double share = 0.0;
  // k3 over the median of the others' k3, and the distance of their logarithms
  // in standard errors; 0 where one of them has fewer than kFewestBatches
  // batches, or no drift.
  double of_others = 0.0;
  double z = 0.0;

  // It drifts more than the others, and not by chance.
  bool is_outlier() const;
};

// The newest batches of each of a run's replicas. Not thread-safe.
//
// A replica's R = sum K / sum n over its m newest batches of n tokens with K =
// sum of k3, a ratio estimate with the standard error s of kernels/doctor/
// audit.h, batches for rows. With s relative to R and 1.1 times as large, and
// t the median of the others' s,
//
//   z = (log R - log median of the others' R) / sqrt(s^2 + f t^2),
//
// f = pi / (2 k) for k others, the variance of a median, within [1/4, 1]. Above
// 3.5 it is an outlier: of replicas that are alike, one in a thousand at most
// from batches of eight rows on, by simulation with log-normal rows.
class RunReplicas {
 public:
  static constexpr size_t kMostReplicas = 64;
  static constexpr size_t kMostBatches = 32;
  static constexpr size_t kFewestBatches = 16;

  // Adds a batch of `tokens` tokens, with the sum of k3 over them, which must
  // be finite. A replica too many takes the place of the one that is silent for
  // longest.
  void Add(std::string_view replica, int64_t tokens, double k3);

  // By name; none if there is one replica alone.
  std::vector<ReplicaDrift> Drifts() const;

 private:
  struct Batch {
    double tokens, k3;
  };
  struct Replica {
    std::string name;
    std::deque<Batch> batches;  // oldest first
  };

  std::deque<Replica> replicas_;  // the newest last
};

// The outliers for a person, empty without any: "replica b drifts 4.1 x the
// others (z 6.2), with 40 % of the k3".
std::string SentenceOf(const std::vector<ReplicaDrift>& drifts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_RUN_REPLICAS_H_
