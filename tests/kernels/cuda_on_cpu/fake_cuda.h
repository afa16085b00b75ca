// The tests' interface to the fake CUDA runtime behind cuda_runtime_api.h.
// Everything is thread-safe.
//
// Streams are queues. Their operations run later, on any thread that makes a
// call: at the latest when a call waits for them, otherwise at a moment and in
// an order between streams that the seed determines. Only the order within a
// stream and events are kept, so that a missing wait of the caller shows as
// wrong bytes.
//
// The runtime knows memory by its range. The host cannot access device memory
// (it faults); asynchronous copies take device and pinned memory only. Memory
// is filled with garbage when it is allocated and when it is freed, in the
// order of its stream. An operation on memory of the wrong kind or on freed
// memory, a copy to the host of memory that nothing has written, or a kernel
// with numbers at misaligned addresses, fails as on a device: every later call
// fails.
//
// Other processes can open memory of cudaMalloc by its IPC handle, as long as
// this process lives. A memfd called fake_cuda_part_DEVICE represents the
// descriptor of an allocation of that device.
//
// Environment, read once: COUNTERWEIGHT_FAKE_CUDA_DEVICES (default 1),
// COUNTERWEIGHT_FAKE_CUDA_MEMORY (bytes of each device, default 2^32),
// COUNTERWEIGHT_FAKE_CUDA_SEED (default 0).
#ifndef COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_FAKE_CUDA_H_
#define COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_FAKE_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace counterweight::fake_cuda {

// Seed 0 runs everything at once; any other selects a temper (eager, lazy,
// mixed) and the order.
void SetSeed(uint64_t seed);

// Clears errors, planned failures and counts of calls. After a sticky error the
// devices are as new: streams, events and pooled memory are gone.
void ForgetErrors();

// The n-th call from now (1 is the next) of `api`, or of any call that can fail
// if `api` is empty, fails with `error`. Calls that free, destroy or report are
// not counted: they fail only where every call does. Kernel launches are the
// api "launch". `sticky`: so does every later call, and what is queued is lost.
void FailCall(const std::string& api, int64_t n, cudaError_t error,
              bool sticky = false);

// The n-th operation that any stream runs from now on fails, for good: later
// calls fail with `error`.
void FailOperation(int64_t n, cudaError_t error);

// Since ForgetErrors: calls that FailCall counts, by name.
std::map<std::string, int64_t> Calls();
int64_t OperationsRun();

// The answers of cuMemGetAddressRange about opened memory: its range, nothing,
// or the range of a larger block.
enum class OpenedRange : uint8_t { kOwn, kUnknown, kOfBlock };
void SetOpenedRange(OpenedRange range);

// Counts of live objects.
struct Census {
  int64_t device_allocations = 0;
  int64_t device_bytes = 0;
  int64_t pinned_allocations = 0;
  int64_t registered_ranges = 0;
  int64_t streams = 0;
  int64_t events = 0;
  int64_t pools = 0;
  int64_t ipc_mappings = 0;
  int64_t reserved_ranges = 0;
  int64_t imported_handles = 0;
  int64_t queued_operations = 0;

  bool operator==(const Census&) const = default;
};
Census Alive();

// Bytes that the memory pools hold of the devices, in use and kept.
int64_t ReservedBytes();

// Peak of the device memory in use since ForgetErrors, bytes, over all devices.
int64_t PeakDeviceBytes();

// [memory, memory + size) is device memory of one allocation, or size is 0.
// REQUIRES: called by what Launch() runs.
bool IsDeviceMemory(const void* memory, size_t size);

// Queues a kernel in the stream, or refuses more shared memory than the kernel
// was granted on this device. `run` returns false if it may not access its
// arguments.
cudaError_t Launch(const void* kernel, const cudaLaunchConfig_t& config,
                   std::function<bool()> run);

// Shared memory that each device grants a block at its request, bytes: at first
// a capability 9.0's. Without a request it gets 48 KiB.
void SetSharedMemory(int bytes);

// The operations that streams ran between StartTrace and StopTrace, in order.
enum class Traffic : uint8_t { kToDevice, kToHost, kOnDevice, kKernel };
struct TracedOperation {
  cudaStream_t stream;
  Traffic traffic;
  size_t bytes;  // of copies
  const void* from;
};
void StartTrace();
std::vector<TracedOperation> StopTrace();

}  // namespace counterweight::fake_cuda

#endif  // COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_FAKE_CUDA_H_
