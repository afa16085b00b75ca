// Receives metrics one by one, so that a caller may keep their numbers alone.
#ifndef COUNTERWEIGHT_KERNELS_METRIC_SINK_H_
#define COUNTERWEIGHT_KERNELS_METRIC_SINK_H_

#include <limits>

namespace counterweight::kernels {

class MetricSink {
 public:
  virtual ~MetricSink() = default;

  // The next metrics are those of spec.rules[rule].
  virtual void BeginRule(int rule) = 0;
  virtual void EndRules() = 0;
  // `name` is a literal: without "rules/NAME/". Processors make NaNs of
  // different bits; this has one.
  void Add(const char* name, double value) {
    Put(name,
        value == value ? value : std::numeric_limits<double>::quiet_NaN());
  }

 private:
  virtual void Put(const char* name, double value) = 0;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_METRIC_SINK_H_
