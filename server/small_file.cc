#include "server/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <system_error>

#include "server/shared_memory/file_descriptor.h"

namespace counterweight::server {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

std::string CannotRead() {
  return "it cannot be read: " + std::generic_category().message(errno);
}

}  // namespace

bool ReadSmallFile(const std::string& path, std::string* text,
                   std::string* error) {
  text->clear();
  // A named pipe without a writer would keep open waiting.
  const FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file.is_open() || fstat(file.get(), &status) != 0) {
    *error = CannotRead();
    return false;
  }
  if (!S_ISREG(status.st_mode)) {
    *error = "it is not a regular file";
    return false;
  }
  std::array<char, 16384> part{};
  for (;;) {
    const ssize_t size = read(file.get(), part.data(), part.size());
    if (size == 0) return true;
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      *error = CannotRead();
      return false;
    }
    text->append(part.data(), static_cast<size_t>(size));
    if (text->size() > kMaxBytes) {
      *error = "it has more than 1 MiB";
      return false;
    }
  }
}

}  // namespace counterweight::server
