#include "server/call/transport_memory.h"

namespace counterweight::server {

void TransportMemory::SetBytes(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  own_ = bytes;
  resize_(own_ + lent_);
}

std::shared_ptr<void> TransportMemory::Lend(int64_t bytes) {
  if (bytes == 0) return nullptr;
  Add(bytes);
  return {this, [bytes](TransportMemory* self) { self->Add(-bytes); }};
}

int64_t TransportMemory::lent_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return lent_;
}

void TransportMemory::Add(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lent_ += bytes;
  resize_(own_ + lent_);
}

}  // namespace counterweight::server
