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

// The server's access to the memory; the numbers are those of the register
// packet (proto/README.md).
enum class Access : uint32_t {
  // The server reads: inputs.
  kInput = 1,
  // The server writes: outputs.
  kOutput = 2,
};

// A mapping that ends with the object.
class Region {
 public:
  // Allocates zeroed memory with all its pages and seals its size; `bytes` is
  // rounded up to pages, at least one. kResourceExhausted if the machine has no
  // memory for it.
  static Status Create(size_t bytes, Access access,
                       std::shared_ptr<Region>* region);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  Access access() const { return access_; }
  // The memfd; open as long as the object lives.
  int descriptor() const { return descriptor_; }
  // True if all of [data, data + bytes) lies in it.
  bool Contains(const void* data, size_t bytes) const;

  // The destructor calls it once, before it frees the memory.
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

// Result of Client::Allocate: memory for inputs or outputs that kSharedMemory
// does not copy. Copies share the memory; the last one frees it, and may
// outlive the client.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  explicit SharedBuffer(std::shared_ptr<Region> region)
      : region_(std::move(region)) {}

  // Null before an allocation; else aligned to a page.
  std::byte* data() const { return region_ ? region_->data() : nullptr; }
  // Bytes, a multiple of a page; 0 before an allocation.
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
