#include "client/cpp/shared_memory/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace counterweight::client {
namespace {

// Thread-safe strerror.
std::string ErrorText(int error) {
  return std::system_category().message(error);
}

Status NoMemory(size_t bytes, int error) {
  return {.code = StatusCode::kResourceExhausted,
          .message = "no shared memory of " + std::to_string(bytes) +
                     " bytes: " + ErrorText(error)};
}

// Sets the size and allocates the pages. The server counts pages and so refuses
// a sparse memfd.
bool Fill(int descriptor, size_t bytes) {
  const auto size = static_cast<off_t>(bytes);
  if (ftruncate(descriptor, size) != 0) return false;
  int result = 0;
  do {
    result = fallocate(descriptor, 0, 0, size);
  } while (result != 0 && errno == EINTR);
  return result == 0 && fcntl(descriptor, F_ADD_SEALS,
                              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

}  // namespace

Status Region::Create(size_t bytes, Access access,
                      std::shared_ptr<Region>* region) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // fallocate would take all free pages before it failed.
  const auto memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page;
  if (bytes > memory - page) return NoMemory(bytes, ENOMEM);
  bytes = bytes == 0 ? page : (bytes + page - 1) / page * page;
  const int descriptor =
      memfd_create("counterweight", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return NoMemory(bytes, errno);
  void* data = MAP_FAILED;
  if (Fill(descriptor, bytes)) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_POPULATE, descriptor, 0);
  }
  if (data == MAP_FAILED) {
    const int error = errno;
    close(descriptor);
    return NoMemory(bytes, error);
  }
  region->reset(
      new Region(descriptor, static_cast<std::byte*>(data), bytes, access));
  return {};
}

Region::~Region() {
  if (on_destroy_) on_destroy_(this);
  munmap(data_, size_);
  close(descriptor_);
}

bool Region::Contains(const void* data, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  const auto first = reinterpret_cast<uintptr_t>(data);
  return first >= begin && first - begin <= size_ &&
         bytes <= size_ - (first - begin);
}

void Region::OnDestroy(std::function<void(const Region*)> callback) {
  on_destroy_ = std::move(callback);
}

}  // namespace counterweight::client
