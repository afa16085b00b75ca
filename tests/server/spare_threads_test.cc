#include "server/spare_threads.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

TEST(SpareThreads, CountsWhatTheConfigAsksFor) {
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

TEST(SpareThreads, AFewThereAre) {
  EXPECT_TRUE(HasSpareThreads(0));
  EXPECT_TRUE(HasSpareThreads(4));
}

// Runs in a child of a user without other processes: the limit is per user.
TEST(SpareThreads, AreCountedTogether) {
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

}  // namespace
}  // namespace counterweight::server
