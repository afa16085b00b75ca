#include "client/cpp/bench/load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace counterweight::bench {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds));
}

double Count(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// The begin times of calls.
class Schedule {
 public:
  Schedule(const Settings& settings, Clock::time_point begin)
      : rate_(settings.rate), begin_(begin) {}

  // Waits for the next begin time.
  Clock::time_point Next() {
    if (!rate_) return Clock::now();
    const uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
    const Clock::time_point due =
        begin_ + Seconds(static_cast<double>(index) / *rate_);
    std::this_thread::sleep_until(due);
    return due;
  }

 private:
  const std::optional<double> rate_;
  const Clock::time_point begin_;
  std::atomic<uint64_t> next_{0};
};

struct Worker {
  Measurement measurement;
  Clock::time_point first = Clock::time_point::max();
  Clock::time_point last = Clock::time_point::min();
};

}  // namespace

Measurement Load(const Settings& settings,
                 const std::vector<client::Request>& requests,
                 const Call& call) {
  const Clock::time_point begin = Clock::now();
  const Clock::time_point measured = begin + Seconds(settings.warmup_s);
  const Clock::time_point end = measured + Seconds(settings.duration_s);
  Schedule schedule(settings, begin);
  std::vector<Worker> workers(requests.size());
  std::vector<std::jthread> threads;
  threads.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    threads.emplace_back([&, i] {
      Worker& worker = workers[i];
      client::Response response;
      for (;;) {
        const Clock::time_point due = schedule.Next();
        if (due >= end) return;
        const Clock::time_point start = Clock::now();
        const client::Status status = call(requests[i], &response);
        const Clock::time_point stop = Clock::now();
        if (due < measured) continue;
        worker.first = std::min(worker.first, due);
        worker.last = std::max(worker.last, stop);
        if (status.ok()) {
          const double wait = settings.rate ? Count(start - due) : 0;
          worker.measurement.Add(wait, Count(stop - start), response);
        } else {
          worker.measurement.AddError(status);
        }
      }
    });
  }
  threads.clear();
  Measurement all;
  Worker bounds;
  for (const Worker& worker : workers) {
    all.Merge(worker.measurement);
    bounds.first = std::min(bounds.first, worker.first);
    bounds.last = std::max(bounds.last, worker.last);
  }
  if (bounds.first < bounds.last)
    all.seconds = Count(bounds.last - bounds.first);
  return all;
}

}  // namespace counterweight::bench
