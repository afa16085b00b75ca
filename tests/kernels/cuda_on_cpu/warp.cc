#include "tests/kernels/cuda_on_cpu/warp.h"

#include <ucontext.h>

#include <memory>
#include <vector>

thread_local Index3 threadIdx{};
thread_local Index3 blockIdx{};
thread_local Index3 blockDim{};
thread_local double* dynamic_shared_memory = nullptr;

namespace counterweight::kernels {
namespace {

constexpr int kLaneCount = 32;
constexpr size_t kStackBytes = size_t{1} << 18;

struct Warp {
  ucontext_t scheduler;
  ucontext_t lanes[kLaneCount];
  std::vector<char> stacks = std::vector<char>(kLaneCount * kStackBytes);
  bool finished[kLaneCount];
  int running;
  unsigned first_thread;
  uint64_t slots[kLaneCount];
  const std::function<void()>* kernel;
};

thread_local std::unique_ptr<Warp> warp;

void RunLane() {
  (*warp->kernel)();
  warp->finished[warp->running] = true;
}

// Back to the scheduler, which comes again when all lanes were here.
void WaitForAll() {
  swapcontext(&warp->lanes[warp->running], &warp->scheduler);
}

void Start(int lane) {
  ucontext_t& context = warp->lanes[lane];
  getcontext(&context);
  context.uc_stack.ss_sp =
      &warp->stacks[static_cast<size_t>(lane) * kStackBytes];
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = &warp->scheduler;
  makecontext(&context, RunLane, 0);
  warp->finished[lane] = false;
}

// True if the lane is not done.
bool Continue(int lane) {
  if (warp->finished[lane]) return false;
  warp->running = lane;
  threadIdx.x = warp->first_thread + static_cast<unsigned>(lane);
  swapcontext(&warp->scheduler, &warp->lanes[lane]);
  return !warp->finished[lane];
}

void RunWarp(unsigned first_thread, const std::function<void()>& kernel) {
  warp->first_thread = first_thread;
  warp->kernel = &kernel;
  for (int lane = 0; lane < kLaneCount; ++lane) Start(lane);
  int waiting = kLaneCount;
  while (waiting > 0) {
    waiting = 0;
    for (int lane = 0; lane < kLaneCount; ++lane) waiting += Continue(lane);
  }
}

}  // namespace

void RunBlock(unsigned block, unsigned threads,
              const std::function<void()>& kernel) {
  if (warp == nullptr) warp = std::make_unique<Warp>();
  blockIdx.x = block;
  blockDim.x = threads;
  for (unsigned first = 0; first < threads; first += kLaneCount) {
    RunWarp(first, kernel);
  }
}

void SyncWarp() { WaitForAll(); }

uint64_t Exchange(uint64_t value, int from) {
  warp->slots[warp->running] = value;
  WaitForAll();
  const uint64_t received = warp->slots[from];
  WaitForAll();
  return received;
}

}  // namespace counterweight::kernels
