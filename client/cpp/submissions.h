// Batches in flight in the background.
#ifndef COUNTERWEIGHT_CLIENT_CPP_SUBMISSIONS_H_
#define COUNTERWEIGHT_CLIENT_CPP_SUBMISSIONS_H_

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include "client/cpp/status.h"

namespace counterweight::client {

// Runs calls on threads of its own, which it makes when they are first needed.
// Thread-safe.
class Submissions {
 public:
  // At most `most` calls at a time; >= 1.
  explicit Submissions(int most) : most_(most) {}
  // Waits for the calls in flight.
  ~Submissions();

  // Blocks while as many calls as possible are in flight.
  std::future<Status> Run(std::function<Status()> call);

 private:
  void Work();

  const int most_;
  std::mutex mutex_;
  std::condition_variable has_room_;
  std::condition_variable has_work_;
  // mutex_ guards this and all members below.
  std::queue<std::packaged_task<Status()>> waiting_;
  int in_flight_ = 0;
  bool ended_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_SUBMISSIONS_H_
