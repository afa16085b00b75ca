#include "server/system_limits.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

TEST(SystemLimits, CountThreadsOfTheConfig) {
  Config config;
  config.threads = 1;
  const int least = NumThreadsAtStart(config);
  config.threads = 4;
  EXPECT_EQ(NumThreadsAtStart(config), least + 6) << "workers and kernels";
  config.shared_memory_socket = "/run/shm.sock";
  EXPECT_EQ(NumThreadsAtStart(config), least + 7);
  config.metrics_listen.reset();
  EXPECT_EQ(NumThreadsAtStart(config), least + 7 - 1);
}

TEST(SystemLimits, AFewThreadsAreThere) {
  EXPECT_TRUE(HasSpareThreads(0));
  EXPECT_TRUE(HasSpareThreads(4));
}

// Runs in a child of a user without other processes: the limit is per user.
TEST(SystemLimits, ThreadsAreCountedTogether) {
#ifdef _GLIBCXX_TSAN
  GTEST_SKIP() << "ThreadSanitizer allows a forked child no threads";
#endif
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto has = [](int count) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit eight{8, 8};
      if (setrlimit(RLIMIT_NPROC, &eight) != 0 || setuid(54331) != 0) _exit(2);
      _exit(HasSpareThreads(count) ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  // The child itself is one thread.
  EXPECT_EQ(has(7), 1);
  EXPECT_EQ(has(8), 0);
  EXPECT_EQ(has(1000), 0);
}

TEST(SystemLimits, AddressSpaceHasRoomForTheBudgets) {
  Config config;
  config.threads = 1;
  const int64_t need = AddressSpaceNeed(config);
  EXPECT_GT(need, config.max_bytes_in_flight + TransportBytes(config));
  config.max_bytes_in_flight += int64_t{10} << 30;
  EXPECT_EQ(AddressSpaceNeed(config), need + (int64_t{13} << 30))
      << "gRPC's buffers grow by three tenths";
  config.shared_memory_socket = "/run/shm.sock";
  EXPECT_GT(AddressSpaceNeed(config),
            need + (int64_t{13} << 30) + config.max_shared_memory_bytes);
}

}  // namespace
}  // namespace counterweight::server
