// A file descriptor with an owner.
#ifndef COUNTERWEIGHT_SERVER_BASE_FILE_DESCRIPTOR_H_
#define COUNTERWEIGHT_SERVER_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace counterweight::server {

// The destructor closes it.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Takes `fd`; negative: none.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }

  // Gives up the descriptor without closing it.
  int Release() { return std::exchange(fd_, -1); }

  // Negative: none.
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_FILE_DESCRIPTOR_H_
