#include "server/observe/metrics.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/file_descriptor.h"
#include "server/observe/process_usage.h"
#include "tests/server/descriptors.h"

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

TEST(ProcessUsage, FilesAreCountedWithoutThatOfTheCount) {
  const double before = ReadProcessUsage().open_files;
  // The other opens the folder, too.
  EXPECT_EQ(before, static_cast<double>(OpenDescriptors() - 1));
  {
    const FileDescriptor one(dup(STDERR_FILENO));
    const FileDescriptor two(dup(STDERR_FILENO));
    EXPECT_EQ(ReadProcessUsage().open_files, before + 2);
  }
  EXPECT_EQ(ReadProcessUsage().open_files, before);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(ReadProcessUsage().max_open_files,
            static_cast<double>(limit.rlim_cur));
}

TEST(ProcessUsage, MemoryIsInBytes) {
  const ProcessUsage before = ReadProcessUsage();
  constexpr size_t kBytes = size_t{64} << 20;
  void* const touched = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(touched, MAP_FAILED);
  const ProcessUsage after = ReadProcessUsage();
  munmap(touched, kBytes);
  EXPECT_NEAR(after.resident_bytes - before.resident_bytes, kBytes,
              kBytes / 2.0);
  EXPECT_NEAR(after.virtual_bytes - before.virtual_bytes, kBytes, kBytes / 2.0);
}

TEST(ProcessUsage, TheStartIsInSecondsSince1970) {
  const double now = static_cast<double>(std::time(nullptr));
  const double start = ReadProcessUsage().start_time_seconds;
  // The machine's boot time is rounded.
  EXPECT_LE(start, now + 2);
  EXPECT_GE(start, now - 3600) << "this program takes less than an hour";
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
