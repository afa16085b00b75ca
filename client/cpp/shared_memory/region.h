// Memory that a server can map: a sealed memfd of this process.
#ifndef COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_REGION_H_
#define COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_REGION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "client/cpp/status.h"

namespace counterweight::client {

// What the server does with the memory; the numbers are those of the packet
// that registers it (proto/README.md).
enum class Access : uint32_t {
  // The server reads: inputs.
  kInput = 1,
  // The server writes: outputs.
  kOutput = 2,
};

// Unmapped with the object.
class Region {
 public:
  // Zeroed memory with all its pages, sealed so that its size is for good;
  // `bytes` is rounded up to pages, and at least one. kResourceExhausted if the
  // machine has no memory for it.
  static Status Create(size_t bytes, Access access,
                       std::shared_ptr<Region>* region);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  Access access() const { return access_; }
  // The memfd, open as long as the object lives.
  int descriptor() const { return descriptor_; }
  // True if all of [data, data + bytes) lies in it.
  bool Contains(const void* data, size_t bytes) const;

  // Called once, by the destructor, before the memory goes.
  void OnDestroy(std::function<void(const Region*)> callback);

 private:
  Region(int descriptor, std::byte* data, size_t size, Access access)
      : descriptor_(descriptor), data_(data), size_(size), access_(access) {}

  const int descriptor_;
  std::byte* const data_;
  const size_t size_;
  const Access access_;
  std::function<void(const Region*)> on_destroy_;
};

// What Client::Allocate returns: memory for inputs or outputs that shared
// memory need not copy. Copies share the memory, which goes with the last of
// them, and may outlive the client.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  explicit SharedBuffer(std::shared_ptr<Region> region)
      : region_(std::move(region)) {}

  // Null while nothing was allocated; else aligned to a page.
  std::byte* data() const { return region_ ? region_->data() : nullptr; }
  // Bytes, a multiple of a page; 0 while nothing was allocated.
  size_t size() const { return region_ ? region_->size() : 0; }
  // The first `count` elements. REQUIRES: they fit.
  template <typename T>
  std::span<T> As(size_t count) const {
    return {reinterpret_cast<T*>(data()), count};
  }

 private:
  std::shared_ptr<Region> region_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_REGION_H_
