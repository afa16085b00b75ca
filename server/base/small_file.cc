#include "server/base/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <system_error>

#include "server/base/config_error.h"
#include "server/base/file_descriptor.h"

namespace counterweight::server {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

absl::Status CannotRead() {
  return ConfigError("it cannot be read: " +
                     std::generic_category().message(errno));
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  std::string text;
  // A named pipe without a writer would keep open waiting.
  const FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file.is_open() || fstat(file.get(), &status) != 0) {
    return CannotRead();
  }
  if (!S_ISREG(status.st_mode)) return ConfigError("it is not a regular file");
  std::array<char, 16384> part{};
  for (;;) {
    const ssize_t size = read(file.get(), part.data(), part.size());
    if (size == 0) return text;
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return CannotRead();
    text.append(part.data(), static_cast<size_t>(size));
    if (text.size() > kMaxBytes) return ConfigError("it has more than 1 MiB");
  }
}

}  // namespace counterweight::server
