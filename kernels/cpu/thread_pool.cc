#include "kernels/cpu/thread_pool.h"

#include "kernels/float_modes.h"

namespace counterweight::kernels {

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this] { Serve(); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t count, const std::function<void(int64_t)>& task) {
  if (count <= 0) return;
  Job job;
  job.task = &task;
  job.count = count;
  std::unique_lock<std::mutex> lock(mutex_);
  jobs_.push_back(&job);
  if (count > 1) wake_.notify_all();
  while (job.next < job.count) RunNext(job, lock);
  job.done.wait(lock, [&] { return job.running == 0; });
}

void ThreadPool::RunNext(Job& job, std::unique_lock<std::mutex>& lock) {
  const int64_t index = job.next++;
  if (job.next == job.count) jobs_.remove(&job);
  ++job.running;
  lock.unlock();
  (*job.task)(index);
  lock.lock();
  // The waiter destroys the job, but not before it has the lock.
  if (--job.running == 0 && job.next == job.count) job.done.notify_all();
}

void ThreadPool::Serve() {
  const DefaultFloatModes modes;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    // One index of the job that waited longest: concurrent jobs share threads.
    Job& job = *jobs_.front();
    jobs_.splice(jobs_.end(), jobs_, jobs_.begin());
    RunNext(job, lock);
  }
}

}  // namespace counterweight::kernels
