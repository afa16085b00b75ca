#include "tests/kernels/cuda_on_cpu/warp.h"

#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
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

// Lanes are started once per thread and then run one kernel after another.
// Switches are jumps between their stacks: swapcontext makes a system call each
// time, which took nine tenths of a test.
struct Warp {
  ucontext_t start;
  std::vector<char> stacks = std::vector<char>(kLaneCount * kStackBytes);
  jmp_buf scheduler;
  jmp_buf lanes[kLaneCount];
  bool started[kLaneCount] = {};
  bool finished[kLaneCount];
  int running;
  unsigned first_thread;
  uint64_t slots[kLaneCount];
  const std::function<void()>* kernel;
};

thread_local std::unique_ptr<Warp> warp;

// Returns to the scheduler, which resumes the lane when all lanes have arrived.
void WaitForAll() {
  if (_setjmp(warp->lanes[warp->running]) == 0) _longjmp(warp->scheduler, 1);
}

void RunLane() {
  for (;;) {
    (*warp->kernel)();
    warp->finished[warp->running] = true;
    WaitForAll();
  }
}

void Start(int lane) {
  warp->started[lane] = true;
  getcontext(&warp->start);
  warp->start.uc_stack.ss_sp =
      &warp->stacks[static_cast<size_t>(lane) * kStackBytes];
  warp->start.uc_stack.ss_size = kStackBytes;
  warp->start.uc_link = nullptr;
  makecontext(&warp->start, RunLane, 0);
  setcontext(&warp->start);
}

void Resume(int lane) {
  if (_setjmp(warp->scheduler) != 0) return;
  if (!warp->started[lane]) Start(lane);
  _longjmp(warp->lanes[lane], 1);
}

// True if the lane is not done.
bool Continue(int lane) {
  if (warp->finished[lane]) return false;
  warp->running = lane;
  threadIdx.x = warp->first_thread + static_cast<unsigned>(lane);
  Resume(lane);
  return !warp->finished[lane];
}

void RunWarp(unsigned first_thread, const std::function<void()>& kernel) {
  warp->first_thread = first_thread;
  warp->kernel = &kernel;
  for (bool& finished : warp->finished) finished = false;
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

void ExpectNothing(bool nothing) {
  if (nothing) return;
  std::fputs(
      "a walk added to a column that the layout of its plan lacks: "
      "kernels/walk/column_table.h has another part for it than its phase\n",
      stderr);
  std::abort();
}

uint64_t Exchange(uint64_t value, int from) {
  warp->slots[warp->running] = value;
  WaitForAll();
  const uint64_t received = warp->slots[from];
  WaitForAll();
  return received;
}

}  // namespace counterweight::kernels
