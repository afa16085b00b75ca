// Tasks that wait without a thread.
#ifndef COUNTERWEIGHT_SERVER_CALL_PARKING_H_
#define COUNTERWEIGHT_SERVER_CALL_PARKING_H_

#include <functional>
#include <mutex>
#include <utility>

namespace counterweight::server {

// The place of one task. Thread-safe.
class Parking {
 public:
  // Keeps `resume` for the next Wake, and returns true: the task is to return.
  // False if Wake has been called since the last time: the task is to go on.
  bool Park(std::function<void()> resume) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(is_woken_, false)) return false;
    resume_ = std::move(resume);
    return true;
  }

  // Calls what is parked, once; nothing parks next if nothing is.
  void Wake() {
    std::function<void()> resume;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_woken_ = !resume_;
      resume.swap(resume_);
    }
    if (resume) resume();
  }

 private:
  std::mutex mutex_;
  bool is_woken_ = false;
  std::function<void()> resume_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_PARKING_H_
