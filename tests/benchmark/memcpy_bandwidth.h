// The memory's copy bandwidth, the reference for other times.
#ifndef COUNTERWEIGHT_TESTS_BENCHMARK_MEMCPY_BANDWIDTH_H_
#define COUNTERWEIGHT_TESTS_BENCHMARK_MEMCPY_BANDWIDTH_H_

namespace counterweight::kernels {

// Bytes per second that memcpy moves from main memory to main memory, reading
// and writing counted. One thread, the best of several tries; measured on the
// first call.
double MemcpyBandwidth();

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_BENCHMARK_MEMCPY_BANDWIDTH_H_
