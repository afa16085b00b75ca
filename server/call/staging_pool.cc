#include "server/call/staging_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace counterweight::server {
namespace {

constexpr int64_t kSmallUnit = int64_t{64} << 10;
// The large page of x86-64 and, with 4 KiB pages, arm64.
constexpr int64_t kLargeUnit = int64_t{2} << 20;

int64_t RoundUp(int64_t bytes) {
  const int64_t unit = bytes < kLargeUnit ? kSmallUnit : kLargeUnit;
  return std::max<int64_t>(1, (bytes + unit - 1) / unit) * unit;
}

// Maps memory of the system, in large pages if available. Null if there is
// none.
std::byte* Map(int64_t bytes) {
  const bool large = bytes >= kLargeUnit;
  const auto size = static_cast<size_t>(large ? bytes + kLargeUnit : bytes);
  void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(mapped);
  if (!large) return begin;
  // Large pages begin at multiples of their size.
  const auto unit = static_cast<uintptr_t>(kLargeUnit);
  const uintptr_t past = reinterpret_cast<uintptr_t>(begin) % unit;
  const size_t lead = past == 0 ? 0 : unit - past;
  if (lead > 0) munmap(begin, lead);
  begin += lead;
  munmap(begin + bytes, size - lead - static_cast<size_t>(bytes));
  madvise(begin, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return begin;
}

}  // namespace

StagingPool::StagingPool(kernels::Corrector* backend,
                         std::chrono::milliseconds window)
    : backend_(backend), window_(window), watcher_([this] { Watch(); }) {}

StagingPool::~StagingPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  watcher_.join();
  for (const Block& block : free_) Free(block);
}

std::shared_ptr<std::byte> StagingPool::Take(int64_t bytes) {
  const int64_t wanted = RoundUp(bytes);
  Block block{};
  std::list<Block> surplus;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // The smallest that is not a waste.
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->bytes < wanted || it->bytes > wanted + wanted / 4) continue;
      if (best == free_.end() || it->bytes <= best->bytes) best = it;
    }
    if (best != free_.end()) {
      block = *best;
      free_bytes_ -= block.bytes;
      free_.erase(best);
    }
    used_bytes_ += block.data != nullptr ? block.bytes : wanted;
    if (block.data != nullptr) peak_ = std::max(peak_, used_bytes_);
    TakeSurplus(&surplus);
  }
  for (const Block& each : surplus) Free(each);
  if (block.data == nullptr) {
    const bool allocated = Allocate(wanted, &block);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!allocated) {
      used_bytes_ -= wanted;
      return nullptr;
    }
    // Only now: a request that fails does not justify keeping more.
    peak_ = std::max(peak_, used_bytes_);
  }
  return {block.data, [this, block](std::byte*) { GiveBack(block); }};
}

int64_t StagingPool::used_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_bytes_;
}

int64_t StagingPool::free_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return free_bytes_;
}

bool StagingPool::Allocate(int64_t bytes, Block* block) {
  auto* data = static_cast<std::byte*>(
      backend_->AllocateHost(static_cast<size_t>(bytes)));
  *block = {data, bytes, data != nullptr};
  if (data == nullptr) block->data = Map(bytes);
  return block->data != nullptr;
}

void StagingPool::Free(const Block& block) {
  if (block.from_backend) {
    backend_->FreeHost(block.data);
  } else {
    munmap(block.data, static_cast<size_t>(block.bytes));
  }
}

void StagingPool::GiveBack(const Block& block) {
  std::list<Block> surplus;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    used_bytes_ -= block.bytes;
    free_bytes_ += block.bytes;
    free_.push_back(block);
    TakeSurplus(&surplus);
    changed_.notify_all();
  }
  for (const Block& each : surplus) Free(each);
}

void StagingPool::TakeSurplus(std::list<Block>* surplus) {
  while (!free_.empty() && used_bytes_ + free_bytes_ > Allowed()) {
    free_bytes_ -= free_.front().bytes;
    surplus->splice(surplus->end(), free_, free_.begin());
  }
}

int64_t StagingPool::Allowed() const { return std::max(peak_, last_peak_); }

void StagingPool::Watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [this] { return stopping_ || !free_.empty(); });
    if (changed_.wait_for(lock, window_, [this] { return stopping_; })) return;
    last_peak_ = std::exchange(peak_, used_bytes_);
    std::list<Block> surplus;
    TakeSurplus(&surplus);
    lock.unlock();
    for (const Block& block : surplus) Free(block);
    lock.lock();
  }
}

}  // namespace counterweight::server
