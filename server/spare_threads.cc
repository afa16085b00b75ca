#include "server/spare_threads.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "server/observe/metrics_server.h"

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

}  // namespace counterweight::server
