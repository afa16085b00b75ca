// The caller's memory, which gRPC sends without a copy.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_BORROWED_MEMORY_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_BORROWED_MEMORY_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "grpcpp/support/slice.h"

namespace counterweight::client {

// Lends slices. The destructor waits until gRPC has released all of them, which
// it may do on any thread and after the end of the call. Must outlive the call
// and its context, which hold slices too.
class BorrowedMemory {
 public:
  BorrowedMemory() = default;
  ~BorrowedMemory();
  BorrowedMemory(const BorrowedMemory&) = delete;
  BorrowedMemory& operator=(const BorrowedMemory&) = delete;

  // Lends the bytes at their address. They must not change while the object
  // lives.
  grpc::Slice Lend(const void* data, size_t bytes);

 private:
  static void Release(void* self);

  std::mutex mutex_;
  std::condition_variable released_;
  int64_t lent_ = 0;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_BORROWED_MEMORY_H_
