#include "server/base/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string_view>
#include <utility>

#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// True if a process accepts connections on the socket, of whatever type.
bool IsServed(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool refused = connect(fd, reinterpret_cast<sockaddr*>(&address),
                               sizeof(address)) != 0 &&
                       errno == ECONNREFUSED;
  close(fd);
  return !refused;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

bool IsWritable(const std::string& folder) {
  return access(folder.c_str(), W_OK) == 0;
}

}  // namespace

PrivateFiles::PrivateFiles() : before_(umask(0177)) {}

PrivateFiles::~PrivateFiles() { umask(before_); }

bool SetSocketMode(const std::string& path, mode_t mode) {
  return chmod(path.c_str(), mode) == 0;
}

SocketFile::SocketFile(std::string path)
    : path_(std::move(path)), id_(IdOf(path_)) {}

void SocketFile::Unlink() const {
  if (IdOf(path_) == id_) unlink(path_.c_str());
}

SocketFile::Id SocketFile::IdOf(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) return {};
  return {found.st_dev, found.st_ino};
}

bool CheckSocketPath(std::string_view flag, const std::string& path,
                     std::string* error) {
  std::string_view problem;
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode)) {
      problem = "a file that is not a socket is there";
    } else if (IsServed(path)) {
      problem = "another server listens there";
    }
  } else if (errno != ENOENT || !IsWritable(FolderOf(path))) {
    problem = "its folder is not there or not writable";
  }
  if (problem.empty()) return true;
  *error = fmt::format("cannot listen on {}{}: {}", flag, path, problem);
  return false;
}

}  // namespace counterweight::server
