// Gives free memory of the heap back to the system.
#ifndef COUNTERWEIGHT_SERVER_HEAP_TRIMMER_H_
#define COUNTERWEIGHT_SERVER_HEAP_TRIMMER_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace counterweight::server {

// glibc keeps what gRPC and protobuf freed in its arenas, gigabytes after a
// peak, and trims by itself only the end of one of them. Thread-safe.
class HeapTrimmer {
 public:
  // Every `period` while `is_idle`: trims if there is enough to give back.
  explicit HeapTrimmer(std::function<bool()> is_idle,
                       std::chrono::milliseconds period);
  ~HeapTrimmer() { Stop(); }
  HeapTrimmer(const HeapTrimmer&) = delete;
  HeapTrimmer& operator=(const HeapTrimmer&) = delete;

  // Idempotent.
  void Stop();

 private:
  void Run();

  const std::function<bool()> is_idle_;
  const std::chrono::milliseconds period_;
  std::mutex mutex_;  // guards stopping_
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_HEAP_TRIMMER_H_
