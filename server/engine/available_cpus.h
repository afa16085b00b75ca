// The CPUs that this process may use: the default number of threads.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_AVAILABLE_CPUS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_AVAILABLE_CPUS_H_

#include <filesystem>

namespace counterweight::server {

// Returns the smallest CPU quota, in CPUs, of the process's control groups and
// of the groups that contain them; infinity if none has one. `root` is the
// folder of proc/ and sys/; unreadable files are no quota.
double CpuQuota(const std::filesystem::path& root = "/");

// Returns how many CPUs the process may run on (its affinity), at most its
// quota rounded up; at least 1.
int AvailableCpus(const std::filesystem::path& root = "/");

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_AVAILABLE_CPUS_H_
