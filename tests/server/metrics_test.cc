#include "server/observe/metrics.h"

#include <sys/resource.h>

#include <regex>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "server/observe/process_usage.h"

namespace counterweight::server {
namespace {

TEST(Metrics, NamesFollowPrometheusConventions) {
  prometheus::Registry registry;
  ServingMetrics serving(&registry);
  serving.SetBackend(
      {.name = "cuda",
       .instruction_set = "",
       .threads = 1,
       .devices = {{.index = 0, .name = "", .memory_bytes = 1}}});
  serving.CountRequest("Correct", "OK");
  const DriftMetrics drift(&registry);
  std::set<std::string> names;
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_TRUE(
        std::regex_match(family.name, std::regex("counterweight_[a-z0-9_]+")))
        << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_EQ(family.name.ends_with("_total"),
              family.type == prometheus::MetricType::Counter)
        << family.name;
  }
}

TEST(Metrics, BucketsReadAsAPersonWouldWriteThem) {
  EXPECT_EQ(LogRatioBuckets(),
            (std::vector<double>{-1, -0.3, -0.1, -0.03, -0.01, 0.01, 0.03, 0.1,
                                 0.3, 1}));
}

TEST(ProcessUsage, IsThatOfThisProcess) {
  const ProcessUsage usage = ReadProcessUsage();
  EXPECT_GT(usage.resident_bytes, 1e6);
  EXPECT_GE(usage.virtual_bytes, usage.resident_bytes);
  EXPECT_GE(usage.open_files, 3);
  EXPECT_GE(usage.max_open_files, usage.open_files);
  EXPECT_GT(usage.start_time_seconds, 1.6e9);
}

// User and system time of this process, in seconds.
double CpuSeconds(double* system = nullptr) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) / 1e6;
  };
  if (system != nullptr) *system = seconds(usage.ru_stime);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(ProcessUsage, CpuTimeIsThatOfUserAndSystem) {
  // /proc counts ticks of 10 ms.
  constexpr double kTicks = 0.03;
  double system = 0;
  do {
    ReadProcessUsage();
    CpuSeconds(&system);
  } while (system < 4 * kTicks);
  const double before = CpuSeconds();
  const double cpu_seconds = ReadProcessUsage().cpu_seconds;
  EXPECT_GE(cpu_seconds, before - kTicks);
  EXPECT_LE(cpu_seconds, CpuSeconds() + kTicks);
}

}  // namespace
}  // namespace counterweight::server
