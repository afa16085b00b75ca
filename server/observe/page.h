// The page at the metrics port's "/", for people without Grafana.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_PAGE_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_PAGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "server/observe/drift_series.h"

namespace counterweight::server {

// An answer to a browser: header lines, each ended by "\r\n", and the body.
struct WebAnswer {
  std::string headers;
  std::string body;
};

// Batches of a run that the page draws; 256 runs of them take 10 MB.
inline constexpr int64_t kPageBatches = 128;

// Thread-safe. The page reads the numbers of now from /metrics, so they are
// the same, and the curves from page.json.
class Page {
 public:
  // `drift` must outlive this. `address` is where clients connect, for
  // the page that has no run to show.
  Page(const DriftSeries* drift, std::string address)
      : drift_(*drift), address_(std::move(address)) {}

  // One file without external assets. Its own script and style carry a nonce,
  // so that no other script runs.
  WebAnswer Html() const;

  // The runs, and the last batches of the one called `run`, if there is one:
  //   {"address": "127.0.0.1:50051",
  //    "runs": [{"name": "a", "seconds": 1.5}],
  //    "run": {"name": "a", "times": [milliseconds since 1970],
  //            "gauges": {"counterweight_drift_kl_nats": [0.1]},
  //            "edges": [-1], "histogram": [tokens of the last batch],
  //            "replicas": [{"name": "b", "tokens": 100, "k3": 0.02,
  //                          "share": 0.5, "of_others": 2.1,
  //                          "outlier": false}]}}
  // "seconds" is the time since the run's last batch. A gauge has null where
  // it was not measured, and is left out if it never was. "replicas" are
  // ReplicaDrift.
  WebAnswer Data(std::string_view run) const;

 private:
  const DriftSeries& drift_;
  const std::string address_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_PAGE_H_
