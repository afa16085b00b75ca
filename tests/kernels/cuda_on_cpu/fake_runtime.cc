#include "tests/kernels/cuda_on_cpu/fake_runtime.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "kernels/float_modes.h"

namespace counterweight::fake_cuda {
namespace {

uint64_t Environment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

template <class Handle, class Objects>
bool Contains(const Objects& objects, Handle handle) {
  return std::any_of(objects.begin(), objects.end(), [&](const auto& object) {
    return object.get() == handle && object->alive;
  });
}

}  // namespace

cudaError_t& LastError() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

int& CurrentDevice() {
  thread_local int device = 0;
  return device;
}

Runtime& Runtime::Get() {
  static Runtime* const runtime = new Runtime;  // outlives every thread
  return *runtime;
}

Runtime::Runtime()
    : memory(
          static_cast<int>(Environment("COUNTERWEIGHT_FAKE_CUDA_DEVICES", 1)),
          Environment("COUNTERWEIGHT_FAKE_CUDA_MEMORY", uint64_t{1} << 32)) {
  SetSeed(Environment("COUNTERWEIGHT_FAKE_CUDA_SEED", 0));
}

void Runtime::SetSeed(uint64_t seed) {
  random_.seed(seed);
  at_once_ = seed == 0;
  constexpr double kTempers[][2] = {{0.0, 0.0}, {0.0, 0.5}, {0.3, 0.0},
                                    {0.3, 0.9}, {0.8, 0.5}, {0.0, 1.0}};
  const auto& temper = kTempers[seed % std::size(kTempers)];
  eagerness_ = temper[0];
  distraction_ = temper[1];
}

bool Runtime::Chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

cudaStream_t Runtime::Resolve(cudaStream_t stream) {
  constexpr uintptr_t kLegacy = 1;  // cudaStreamLegacy
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  if (handle > kLegacy) return stream;
  cudaStream_t& of_device = default_streams[CurrentDevice()];
  if (of_device == nullptr || !of_device->alive) {
    streams.push_back(
        std::make_unique<CUstream_st>(CUstream_st{CurrentDevice()}));
    of_device = streams.back().get();
  }
  return of_device;
}

bool Runtime::Owns(cudaStream_t stream) const {
  return Contains(streams, stream);
}

bool Runtime::Owns(cudaEvent_t event) const { return Contains(events, event); }

cudaError_t Runtime::PlannedError(const char* api) {
  ++calls[api];
  for (PlannedFailure& failure : planned) {
    if (!failure.api.empty() && failure.api != api) continue;
    if (--failure.calls_left != 0) continue;
    if (failure.sticky) sticky = failure.error;
    return failure.error;
  }
  return cudaSuccess;
}

cudaError_t Runtime::Call(const char* api, bool can_fail,
                          const std::function<cudaError_t()>& body) {
  const std::lock_guard lock(mutex);
  cudaError_t error = sticky;
  if (error == cudaSuccess && can_fail) error = PlannedError(api);
  if (error == cudaSuccess) {
    RunSome();
    error = body();
    if (at_once_) RunAll();
    if (error == cudaSuccess) error = sticky;
  }
  if (touched_) memory.Lock();
  touched_ = false;
  if (sticky != cudaSuccess) {
    for (const auto& stream : streams) stream->queue.clear();
  }
  if (error != cudaSuccess) LastError() = error;
  return error;
}

cudaError_t Runtime::Enqueue(cudaStream_t stream, Operation operation) {
  if (!Owns(stream)) return cudaErrorInvalidResourceHandle;
  stream->queue.push_back(std::move(operation));
  return cudaSuccess;
}

bool Runtime::CanRun(const CUstream_st& stream) const {
  if (stream.queue.empty()) return false;
  const Operation& first = stream.queue.front();
  return first.awaits == nullptr || first.awaits->passed >= first.record;
}

CUstream_st* Runtime::AnyThatCanRun() {
  std::vector<CUstream_st*> candidates;
  for (const auto& stream : streams) {
    if (CanRun(*stream)) candidates.push_back(stream.get());
  }
  if (candidates.empty()) return nullptr;
  return candidates[random_() % candidates.size()];
}

CUstream_st* Runtime::Needed(CUstream_st* stream) {
  while (!CanRun(*stream)) stream = stream->queue.front().stream;
  return stream;
}

void Runtime::RunOne(CUstream_st* stream) {
  const counterweight::kernels::DefaultFloatModes modes;  // like a device's
  const Operation operation = std::move(stream->queue.front());
  stream->queue.pop_front();
  ++operations_run;
  // Once per call: it needs one or two system calls.
  if (!touched_) memory.Unlock();
  touched_ = true;
  cudaError_t error =
      operations_run == failing_operation ? operation_error : cudaSuccess;
  if (error == cudaSuccess && operation.run) error = operation.run();
  if (error != cudaSuccess && sticky == cudaSuccess) sticky = error;
}

void Runtime::RunSome() {
  while (sticky == cudaSuccess && Chance(at_once_ ? 0.0 : eagerness_)) {
    CUstream_st* stream = AnyThatCanRun();
    if (stream == nullptr) return;
    RunOne(stream);
  }
}

cudaError_t Runtime::RunUntil(cudaStream_t stream,
                              const std::function<bool()>& done) {
  while (sticky == cudaSuccess && !done()) {
    CUstream_st* next = Chance(distraction_) ? AnyThatCanRun() : nullptr;
    RunOne(next == nullptr ? Needed(stream) : next);
  }
  return sticky;
}

void Runtime::Revive() {
  sticky = cudaSuccess;
  for (const auto& stream : streams) stream->alive = false;
  for (const auto& event : events) event->alive = false;
  std::vector<void*> pooled;
  for (const auto& [address, allocation] : memory.allocations()) {
    if (allocation.kind == MemoryKind::kPooled) {
      pooled.push_back(reinterpret_cast<void*>(address));
    }
  }
  for (void* allocation : pooled) memory.Free(allocation);
}

cudaError_t Runtime::RunAll() {
  while (sticky == cudaSuccess) {
    CUstream_st* stream = AnyThatCanRun();
    if (stream == nullptr) break;
    RunOne(stream);
  }
  return sticky;
}

}  // namespace counterweight::fake_cuda
