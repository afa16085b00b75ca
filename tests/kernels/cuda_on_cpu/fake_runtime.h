// The state behind cuda_runtime_api.h. One lock guards all of it; kernels run
// under it.
#ifndef COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_FAKE_RUNTIME_H_
#define COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_FAKE_RUNTIME_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/fake_memory.h"

// CUDA's names. Never freed, so that use of a stale handle is detected.
struct CUevent_st {
  int device;
  bool timed;
  bool alive = true;
  uint64_t recorded = 0;  // number of the last record that was put in
  uint64_t passed = 0;    // of the last record that ran
  std::chrono::steady_clock::time_point time{};
  struct CUstream_st* stream = nullptr;  // of the last record
};

namespace counterweight::fake_cuda {

struct Operation {
  // Runs only when `awaits` has passed its record number `record`, which is in
  // `stream`.
  CUevent_st* awaits = nullptr;
  uint64_t record = 0;
  // Its action; empty: none.
  std::function<cudaError_t()> run;
  struct CUstream_st* stream = nullptr;
};

}  // namespace counterweight::fake_cuda

struct CUmemPoolHandle_st {
  int device;
  bool alive = true;
  bool keeps = false;   // what is freed
  size_t reserved = 0;  // bytes: what is used, and what is kept
};

struct CUstream_st {
  int device;
  bool alive = true;
  std::deque<counterweight::fake_cuda::Operation> queue;
};

namespace counterweight::fake_cuda {

class Runtime {
 public:
  static Runtime& Get();

  // Runs `body` as the call `api` under the lock, unless a failure is planned.
  // Calls that cannot fail are not counted.
  cudaError_t Call(const char* api, bool can_fail,
                   const std::function<cudaError_t()>& body);

  // All members below require the lock.
  int num_devices() const { return static_cast<int>(memory.num_devices()); }
  // The current device's default stream for null and 1 (cudaStreamLegacy);
  // other streams as they are. Like those that do not block, it is ordered by
  // events alone.
  cudaStream_t Resolve(cudaStream_t stream);
  bool Owns(cudaStream_t stream) const;
  bool Owns(cudaEvent_t event) const;
  cudaError_t Enqueue(cudaStream_t stream, Operation operation);
  // Runs the operations that `done` needs, and others by the temper.
  cudaError_t RunUntil(cudaStream_t stream, const std::function<bool()>& done);
  cudaError_t RunAll();
  // Restores the state of a new process after a sticky error.
  void Revive();

  std::mutex mutex;
  Memory memory;
  std::vector<std::unique_ptr<CUstream_st>> streams;
  std::vector<std::unique_ptr<CUevent_st>> events;
  std::vector<std::unique_ptr<CUmemPoolHandle_st>> pools;

  struct PlannedFailure {
    std::string api;
    int64_t calls_left;
    cudaError_t error;
    bool sticky;
  };
  std::vector<PlannedFailure> planned;
  // Dynamic shared memory that kernels were granted, by device and kernel.
  std::map<std::pair<int, const void*>, int> granted_shared;
  std::map<int, cudaStream_t> default_streams;  // by device
  int shared_limit = 227 << 10;
  OpenedRange opened_range = OpenedRange::kOwn;
  std::map<std::string, int64_t> calls;
  int64_t operations_run = 0;
  int64_t failing_operation = 0;  // 0: none
  cudaError_t operation_error = cudaSuccess;
  cudaError_t sticky = cudaSuccess;
  std::optional<std::vector<TracedOperation>> trace;

  void SetSeed(uint64_t seed);

 private:
  Runtime();
  bool Chance(double probability);
  bool CanRun(const CUstream_st& stream) const;
  // Null if no stream can.
  CUstream_st* AnyThatCanRun();
  // `stream`, or the one that it waits for.
  CUstream_st* Needed(CUstream_st* stream);
  void RunOne(CUstream_st* stream);
  void RunSome();
  // The error of the call, if it is to fail.
  cudaError_t PlannedError(const char* api);

  std::mt19937_64 random_;
  bool touched_ = false;  // device memory is unlocked until the call ends
  bool at_once_ = true;
  double eagerness_ = 1.0;    // of running something at a call
  double distraction_ = 0.0;  // of running something else than what is needed
};

// The error of this thread's last failed call.
cudaError_t& LastError();
int& CurrentDevice();

}  // namespace counterweight::fake_cuda

#endif  // COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_FAKE_RUNTIME_H_
