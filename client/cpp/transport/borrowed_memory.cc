#include "client/cpp/transport/borrowed_memory.h"

namespace counterweight::client {

BorrowedMemory::~BorrowedMemory() {
  std::unique_lock lock(mutex_);
  released_.wait(lock, [this] { return lent_ == 0; });
}

grpc::Slice BorrowedMemory::Lend(const void* data, size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    ++lent_;
  }
  // gRPC only reads what it sends, but its slices are not const.
  return {const_cast<void*>(data), bytes, &BorrowedMemory::Release, this};
}

void BorrowedMemory::Release(void* self) {
  auto* const memory = static_cast<BorrowedMemory*>(self);
  const std::lock_guard lock(memory->mutex_);
  // Under the lock: the object may be destroyed as soon as it is released.
  if (--memory->lent_ == 0) memory->released_.notify_all();
}

}  // namespace counterweight::client
