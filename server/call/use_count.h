// Counts the users of an object that its owner is about to destroy.
#ifndef COUNTERWEIGHT_SERVER_CALL_USE_COUNT_H_
#define COUNTERWEIGHT_SERVER_CALL_USE_COUNT_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace counterweight::server {

// Tracks objects that gRPC keeps past the end of a call, such as the callbacks
// of alarms, which it destroys on threads of its own at any time. Thread-safe.
class UseCount {
 public:
  // A use that lasts until the last copy of the result is gone.
  std::shared_ptr<void> Use();

  // Waits for the end of all uses. REQUIRES: no other begins any more.
  void WaitUntilUnused();

 private:
  std::mutex mutex_;  // guards uses_
  std::condition_variable unused_;
  int64_t uses_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_USE_COUNT_H_
