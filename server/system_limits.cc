#include "server/system_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "server/observe/metrics_server.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// Threads of the log, the acceptor, the call clock, the heap trimmer, the
// staging pool and the flood watch.
constexpr int kServerThreads = 6;

// As counted with gRPC 1.51, and some more for those that it starts under load.
int NumGrpcThreads() {
  const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_CONF));
  return 12 + std::clamp(cores, 2, 16) + std::clamp(cores / 2, 2, 16);
}

// A stack where the system has no limit for them, and a heap, as glibc reserves
// them for each thread, but for at most eight heaps a core.
constexpr int64_t kStackBytes = int64_t{8} << 20;
constexpr int64_t kHeapBytes = int64_t{64} << 20;
constexpr int64_t kHeapsPerCore = 8;

int64_t StackBytes() {
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) != 0) return kStackBytes;
  if (stack.rlim_cur == RLIM_INFINITY) return kStackBytes;
  return static_cast<int64_t>(stack.rlim_cur);
}

// RLIM_INFINITY if there is none.
rlim_t AddressSpaceLimit() {
  rlimit space{};
  return getrlimit(RLIMIT_AS, &space) == 0 ? space.rlim_cur : RLIM_INFINITY;
}

}  // namespace

int NumThreadsAtStart(const Config& config) {
  // Workers, and the kernels' threads (a worker is one of them).
  int count = 2 * NumThreads(config) - 1 + kServerThreads + NumGrpcThreads();
  if (config.metrics_listen) count += kMetricsServerThreads;
  if (!config.shared_memory_socket.empty()) count += 1;
  // Access looks at its files.
  if (!config.tls_certificate.empty() || !config.tokens.empty()) count += 1;
  if (!config.otlp.target.empty()) count += 1;
  return count;
}

bool HasSpareThreads(int count) {
  // All threads run at once, or a later one could take the place of an earlier
  // one.
  std::latch enough(1);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  bool all = true;
  try {
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&enough] { enough.wait(); });
    }
  } catch (const std::system_error&) {
    all = false;
  }
  enough.count_down();
  for (std::thread& thread : threads) thread.join();
  return all;
}

int64_t AddressSpaceNeed(const Config& config) {
  const int64_t threads = NumThreadsAtStart(config);
  const int64_t heaps =
      std::min(threads, kHeapsPerCore * sysconf(_SC_NPROCESSORS_ONLN));
  int64_t need = config.max_bytes_in_flight + TransportBytes(config) +
                 threads * StackBytes() + heaps * kHeapBytes;
  if (!config.shared_memory_socket.empty()) {
    need += config.max_shared_memory_bytes;
  }
  return need;
}

std::string CheckSystemLimits(const Config& config) {
  const rlim_t limit = AddressSpaceLimit();
  const int64_t need = AddressSpaceNeed(config);
  if (limit != RLIM_INFINITY && limit < static_cast<rlim_t>(need)) {
    return fmt::format(
        "{} bytes of address space are allowed (ulimit -v), and "
        "--max_bytes_in_flight={} with --threads={} reserves {} under load: "
        "limit "
        "memory by a cgroup instead, or lower these flags",
        limit, config.max_bytes_in_flight, NumThreads(config), need);
  }
  const int threads = NumThreadsAtStart(config);
  if (!HasSpareThreads(threads)) {
    return fmt::format(
        "cannot start {} threads: the system allows fewer (ulimit -u, or "
        "pids.max of the container); see --threads",
        threads);
  }
  return "";
}

}  // namespace counterweight::server
