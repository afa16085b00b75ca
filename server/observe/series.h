// A time series of a family that lives as long as its object.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_SERIES_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_SERIES_H_

#include <utility>

#include "server/observe/metrics.h"

namespace counterweight::server {

// One time series, created at its first use and removed with this object, so
// that a value that was never measured does not show as 0.
template <typename T>
class Series {
 public:
  Series(Family<T>& family, prometheus::Labels labels)
      : family_(family), labels_(std::move(labels)) {}
  ~Series() {
    if (metric_ != nullptr) family_.Remove(metric_);
  }
  Series(const Series&) = delete;
  Series& operator=(const Series&) = delete;

  template <typename... Arguments>
  T& Get(const Arguments&... arguments) {
    if (metric_ == nullptr) metric_ = &family_.Add(labels_, arguments...);
    return *metric_;
  }

 private:
  Family<T>& family_;
  const prometheus::Labels labels_;
  T* metric_ = nullptr;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_SERIES_H_
