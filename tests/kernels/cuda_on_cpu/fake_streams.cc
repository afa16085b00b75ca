// Streams and events of the fake runtime.
#include <utility>

#include "tests/kernels/cuda_on_cpu/fake_runtime.h"

using counterweight::fake_cuda::CurrentDevice;
using counterweight::fake_cuda::Runtime;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaStreamCreateWithFlags", true, [&] {
    runtime.streams.push_back(
        std::make_unique<CUstream_st>(CUstream_st{CurrentDevice()}));
    *stream = runtime.streams.back().get();
    return cudaSuccess;
  });
}

// Queued operations still run, as on a device.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaStreamDestroy", false, [&] {
    if (!runtime.Owns(stream)) return cudaErrorInvalidResourceHandle;
    stream->alive = false;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaStreamSynchronize", true, [&] {
    stream = runtime.Resolve(stream);
    if (!runtime.Owns(stream)) return cudaErrorInvalidResourceHandle;
    return runtime.RunUntil(stream, [&] { return stream->queue.empty(); });
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaStreamQuery", true, [&] {
    if (!runtime.Owns(stream)) return cudaErrorInvalidResourceHandle;
    return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaStreamWaitEvent", true, [&] {
    if (!runtime.Owns(event)) return cudaErrorInvalidResourceHandle;
    return runtime.Enqueue(runtime.Resolve(stream),
                           {event, event->recorded, nullptr, event->stream});
  });
}

cudaError_t cudaDeviceSynchronize() {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaDeviceSynchronize", true,
                      [&] { return runtime.RunAll(); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaEventCreateWithFlags", true, [&] {
    runtime.events.push_back(std::make_unique<CUevent_st>(
        CUevent_st{CurrentDevice(), (flags & cudaEventDisableTiming) == 0}));
    *event = runtime.events.back().get();
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaEventDestroy", false, [&] {
    if (!runtime.Owns(event)) return cudaErrorInvalidResourceHandle;
    event->alive = false;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaEventRecord", true, [&] {
    stream = runtime.Resolve(stream);
    if (!runtime.Owns(event) || !runtime.Owns(stream) ||
        event->device != stream->device) {
      return cudaErrorInvalidResourceHandle;
    }
    const uint64_t record = ++event->recorded;
    event->stream = stream;
    return runtime.Enqueue(stream, {nullptr, 0, [event, record] {
                                      event->passed = record;
                                      event->time =
                                          std::chrono::steady_clock::now();
                                      return cudaSuccess;
                                    }});
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaEventQuery", true, [&] {
    if (!runtime.Owns(event)) return cudaErrorInvalidResourceHandle;
    return event->passed >= event->recorded ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaEventSynchronize", true, [&] {
    if (!runtime.Owns(event)) return cudaErrorInvalidResourceHandle;
    if (event->stream == nullptr) return cudaSuccess;
    return runtime.RunUntil(event->stream,
                            [&] { return event->passed >= event->recorded; });
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start,
                                 cudaEvent_t end) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaEventElapsedTime", true, [&] {
    if (!runtime.Owns(start) || !runtime.Owns(end) || !start->timed ||
        !end->timed || start->recorded == 0 || end->recorded == 0) {
      return cudaErrorInvalidResourceHandle;
    }
    if (start->passed < start->recorded || end->passed < end->recorded) {
      return cudaErrorNotReady;
    }
    *milliseconds =
        std::chrono::duration<float, std::milli>(end->time - start->time)
            .count();
    return cudaSuccess;
  });
}

}  // extern "C"
