#include "server/engine/available_cpus.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::server {
namespace {

namespace fs = std::filesystem;

struct File {
  std::string_view path;
  std::string_view content;
};

struct Case {
  std::string_view name;
  std::vector<File> files;
  double quota;  // CPUs
};

const double kNone = std::numeric_limits<double>::infinity();

class AvailableCpusOf : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    for (const File& file : GetParam().files) {
      fs::create_directories((root_ / file.path).parent_path());
      std::ofstream(root_ / file.path) << file.content << "\n";
    }
  }

  // Tests run beside each other.
  const TemporaryFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_P(AvailableCpusOf, Quota) { EXPECT_EQ(CpuQuota(root_), GetParam().quota); }

TEST_P(AvailableCpusOf, TheQuotaBoundsTheAffinity) {
  const int affinity = AvailableCpus(root_ / "nothing");
  const double rounded = std::max(1.0, std::ceil(GetParam().quota));
  EXPECT_EQ(AvailableCpus(root_), std::min<double>(rounded, affinity));
}

const Case kCases[] = {
    {"Nothing", {}, kNone},
    {"NoGroup", {{"sys/fs/cgroup/cpu.max", "100000 100000"}}, kNone},
    {"Version2",
     {{"proc/self/cgroup", "0::/a"},
      {"sys/fs/cgroup/a/cpu.max", "150000 100000"}},
     1.5},
    {"Version2Unlimited",
     {{"proc/self/cgroup", "0::/a"}, {"sys/fs/cgroup/a/cpu.max", "max 100000"}},
     kNone},
    {"AGroupAboveIsSmaller",
     {{"proc/self/cgroup", "0::/kubepods/pod1/container"},
      {"sys/fs/cgroup/kubepods/cpu.max", "1600000 100000"},
      {"sys/fs/cgroup/kubepods/pod1/cpu.max", "200000 100000"},
      {"sys/fs/cgroup/kubepods/pod1/container/cpu.max", "400000 100000"}},
     2.0},
    {"AContainersOwnNamespace",
     {{"proc/self/cgroup", "0::/"}, {"sys/fs/cgroup/cpu.max", "300000 100000"}},
     3.0},
    {"TheHostsPathInAContainer",
     {{"proc/self/cgroup", "0::/kubepods/pod1/container"},
      {"sys/fs/cgroup/cpu.max", "50000 100000"}},
     0.5},
    {"OutsideOfTheNamespace",
     {{"proc/self/cgroup", "0::/../../a"},
      {"sys/fs/cgroup/a/cpu.max", "100000 100000"}},
     kNone},
    {"Version1",
     {{"proc/self/cgroup", "4:memory:/b\n3:cpu,cpuacct:/a/b\n2:cpuset:/c"},
      {"sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "250000"},
      {"sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "50000"},
      {"sys/fs/cgroup/memory/b/cpu.cfs_quota_us", "1"},
      {"sys/fs/cgroup/memory/b/cpu.cfs_period_us", "1"}},
     5.0},
    {"Version1Unlimited",
     {{"proc/self/cgroup", "3:cpuacct,cpu:/a"},
      {"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1"},
      {"sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000"}},
     kNone},
    {"Hybrid",
     {{"proc/self/cgroup", "1:cpu:/a\n0::/b"},
      {"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000"},
      {"sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000"},
      {"sys/fs/cgroup/unified/b/cpu.max", "200000 100000"}},
     2.0},
    {"Garbage",
     {{"proc/self/cgroup", "0::/a\n:\nnothing\n0:x"},
      {"sys/fs/cgroup/a/cpu.max", "many 100000"},
      {"sys/fs/cgroup/cpu.max", "100000 0"}},
     kNone},
};

INSTANTIATE_TEST_SUITE_P(All, AvailableCpusOf, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& each) {
                           return std::string(each.param.name);
                         });

TEST(AvailableCpus, FollowTheAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(AvailableCpus("/nothing"), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    if (CPU_COUNT(&one) == 1) break;
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AvailableCpus("/nothing"), 1);
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace counterweight::server
