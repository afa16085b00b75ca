// Creation and removal of the files of Unix sockets.
#ifndef COUNTERWEIGHT_SERVER_BASE_UNIX_SOCKET_H_
#define COUNTERWEIGHT_SERVER_BASE_UNIX_SOCKET_H_

#include <sys/types.h>

#include <string>
#include <string_view>

namespace counterweight::server {

// While it lives, files that this process makes have mode 0600 at most. The
// umask belongs to the whole process: use it at start only.
class PrivateFiles {
 public:
  PrivateFiles();
  ~PrivateFiles();
  PrivateFiles(const PrivateFiles&) = delete;
  PrivateFiles& operator=(const PrivateFiles&) = delete;

 private:
  const mode_t before_;
};

// Gives the file of a bound socket its mode. Returns false, and sets errno, if
// that fails.
bool SetSocketMode(const std::string& path, mode_t mode);

// True if a socket may be bound at `path`: there is no file, or a socket
// without a listening process, which will be replaced. Otherwise *error is a
// sentence that names the path behind `flag`, "--listen=unix:".
bool CheckSocketPath(std::string_view flag, const std::string& path,
                     std::string* error);

// The file of a socket that this process has bound at `path`.
class SocketFile {
 public:
  explicit SocketFile(std::string path);

  // Removes the file if it is still the same one: an operator may have removed
  // it, and another server may have made its own.
  void Unlink() const;

 private:
  // The identity of a file, whatever its name.
  struct Id {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const Id&) const = default;
  };
  static Id IdOf(const std::string& path);

  std::string path_;
  Id id_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_UNIX_SOCKET_H_
