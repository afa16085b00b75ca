// The bound of gRPC's own memory.
#ifndef COUNTERWEIGHT_SERVER_CALL_TRANSPORT_MEMORY_H_
#define COUNTERWEIGHT_SERVER_CALL_TRANSPORT_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace counterweight::server {

// Sizes gRPC's resource quota. gRPC counts a message's bytes from the socket
// until they are freed, and ends connections of any client when the quota is
// used up. An admitted request's bytes are in admission's budget as well: the
// quota grows by them, so that requests that wait for a worker do not take the
// room of those that arrive. Thread-safe.
class TransportMemory {
 public:
  // `resize` sets the quota to that many bytes.
  explicit TransportMemory(std::function<void(int64_t bytes)> resize)
      : resize_(std::move(resize)) {}
  TransportMemory(const TransportMemory&) = delete;
  TransportMemory& operator=(const TransportMemory&) = delete;

  // Sets the bytes for messages that are not admitted.
  void SetBytes(int64_t bytes);

  // Adds `bytes`, which admission accounts for, until the result is destroyed,
  // at the latest before this.
  std::shared_ptr<void> Lend(int64_t bytes);

  // Bytes that are lent now.
  int64_t lent_bytes() const;

 private:
  void Add(int64_t bytes);

  const std::function<void(int64_t bytes)> resize_;
  // Guards what follows, and orders the calls of resize_.
  mutable std::mutex mutex_;
  int64_t own_ = 0;
  int64_t lent_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_TRANSPORT_MEMORY_H_
