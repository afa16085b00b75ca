#include "server/observe/run_ring.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "server/observe/run_series.h"

namespace counterweight::server {

void RunRing::Add(const ShownBatch& shown, const RunDrift& drift,
                  int64_t unix_milliseconds) {
  if (capacity_ == 0) return;
  RunPoint point{.unix_milliseconds = unix_milliseconds,
                 .step = shown.step,
                 .gauges = {},
                 .histogram = {}};
  for (size_t i = 0; i < point.gauges.size(); ++i) {
    const DriftGauge& gauge = kDriftGauges[i];
    point.gauges[i] = IsMeasured(gauge.needs, shown)
                          ? drift.*gauge.field
                          : std::numeric_limits<double>::quiet_NaN();
  }
  const PublishedSums::Drift& sums = shown.batch->sums.drift;
  std::copy(std::begin(sums.histogram), std::end(sums.histogram),
            point.histogram.begin());
  const auto same =
      std::find_if(points_.begin(), points_.end(), [&](const RunPoint& each) {
        return shown.step && each.step == shown.step;
      });
  if (same != points_.end()) {
    *same = point;
  } else if (points_.size() < capacity_) {
    points_.push_back(point);
  } else {
    points_[oldest_] = point;
    oldest_ = (oldest_ + 1) % capacity_;
  }
}

std::vector<RunPoint> RunRing::Points() const {
  std::vector<RunPoint> points = points_;
  std::rotate(points.begin(),
              points.begin() + static_cast<std::ptrdiff_t>(oldest_),
              points.end());
  return points;
}

}  // namespace counterweight::server
