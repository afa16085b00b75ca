// A time series of a family that lives as long as its object.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_SERIES_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_SERIES_H_

#include <chrono>
#include <utility>

#include "server/observe/metrics.h"

namespace counterweight::server {

// One time series, created at its first use and removed with this object, if
// not before, so that a value that was never measured does not show as 0.
template <typename T>
class Series {
 public:
  Series(Family<T>& family, prometheus::Labels labels)
      : family_(family), labels_(std::move(labels)) {}
  ~Series() { Remove(); }
  Series(const Series&) = delete;
  Series& operator=(const Series&) = delete;

  template <typename... Arguments>
  T& Get(const Arguments&... arguments) {
    if (metric_ == nullptr) metric_ = &family_.Add(labels_, arguments...);
    return *metric_;
  }

  // Until its next use.
  void Remove() {
    if (metric_ != nullptr) family_.Remove(metric_);
    metric_ = nullptr;
  }

 private:
  Family<T>& family_;
  const prometheus::Labels labels_;
  T* metric_ = nullptr;
};

// A gauge that leaves some time after its last value, so that a server which a
// run has left does not show it for good.
class TimedGauge {
 public:
  using Time = std::chrono::steady_clock::time_point;

  TimedGauge(Family<Gauge>& family, prometheus::Labels labels)
      : series_(family, std::move(labels)) {}

  void Set(double value, Time now) {
    series_.Get().Set(value);
    last_set_ = now;
  }
  // Hides a value from before `oldest`, until the next Set.
  void HideIfBefore(Time oldest) {
    if (last_set_ < oldest) series_.Remove();
  }

 private:
  Series<Gauge> series_;
  Time last_set_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_SERIES_H_
