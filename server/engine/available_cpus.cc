#include "server/engine/available_cpus.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace counterweight::server {
namespace {

namespace fs = std::filesystem;

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

std::optional<double> Number(const std::string& text) {
  std::istringstream stream(text);
  double number = 0.0;
  stream >> number;
  if (!stream || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::string FirstLine(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

double Quota(const std::string& quota, const std::string& period) {
  const std::optional<double> microseconds = Number(quota);
  const std::optional<double> of = Number(period);
  // "max" and -1 are no quota.
  if (!microseconds || *microseconds <= 0.0 || !of || *of <= 0.0) {
    return kNoQuota;
  }
  return *microseconds / *of;
}

// Version 2: cpu.max holds "QUOTA PERIOD". Version 1: each has a file.
double QuotaOfGroup(const fs::path& group) {
  std::istringstream line(FirstLine(group / "cpu.max"));
  std::string quota;
  std::string period;
  line >> quota >> period;
  return std::min(Quota(quota, period),
                  Quota(FirstLine(group / "cpu.cfs_quota_us"),
                        FirstLine(group / "cpu.cfs_period_us")));
}

// The quota of a group and of the groups that contain it. A container may see
// its own group as the mount's root while /proc has the host's path, which does
// not exist below the mount; then the root's quota is the container's.
double QuotaOfPath(const fs::path& mount, std::string_view path) {
  double quota = QuotaOfGroup(mount);
  fs::path group = mount;
  for (const fs::path& part : fs::path(path).relative_path()) {
    // A process that was moved out of its namespace's root.
    if (part == "..") break;
    group /= part;
    quota = std::min(quota, QuotaOfGroup(group));
  }
  return quota;
}

// Whether a comma-separated list has the controller.
bool HasCpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == "cpu") return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

int Affinity() {
  // sched_getaffinity fails where the kernel has more CPUs than the set.
  for (size_t cpus = 1024; cpus <= (size_t{1} << 20); cpus *= 2) {
    cpu_set_t* const set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t size = CPU_ALLOC_SIZE(cpus);
    const bool is_known = sched_getaffinity(0, size, set) == 0;
    const int count = is_known ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (is_known) return count;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

double CpuQuota(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  double quota = kNoQuota;
  std::ifstream groups(root / "proc/self/cgroup");
  // "HIERARCHY:CONTROLLERS:PATH", of version 2 "0::PATH".
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    std::vector<std::string> folders;
    if (controllers.empty()) {
      folders = {"", "unified"};
    } else if (HasCpu(controllers)) {
      folders = {"cpu", controllers};
    }
    for (const std::string& folder : folders) {
      quota = std::min(quota, QuotaOfPath(mounts / folder, path));
    }
  }
  return quota;
}

int AvailableCpus(const fs::path& root) {
  const double quota = std::ceil(CpuQuota(root));
  const int affinity = std::max(1, Affinity());
  return quota < affinity ? std::max(1, static_cast<int>(quota)) : affinity;
}

}  // namespace counterweight::server
