// The file descriptors of this process.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DESCRIPTORS_H_
#define COUNTERWEIGHT_TESTS_SERVER_DESCRIPTORS_H_

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <iterator>

#include "gtest/gtest.h"
#include "server/base/file_descriptor.h"

namespace counterweight::server {

inline int64_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// While it lives, this process can open no more files.
class NoFreeDescriptor {
 public:
  NoFreeDescriptor() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const FileDescriptor lowest_free(dup(STDERR_FILENO));
    const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest_free.get()),
                      .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  NoFreeDescriptor(const NoFreeDescriptor&) = delete;
  NoFreeDescriptor& operator=(const NoFreeDescriptor&) = delete;
  ~NoFreeDescriptor() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DESCRIPTORS_H_
