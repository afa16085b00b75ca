// What copying memory takes here and now, which other times are compared with.
#ifndef COUNTERWEIGHT_TESTS_BENCHMARK_MEMCPY_BANDWIDTH_H_
#define COUNTERWEIGHT_TESTS_BENCHMARK_MEMCPY_BANDWIDTH_H_

#include <cstdint>

namespace counterweight::kernels {

// Bytes per second that memcpy moves, reading and writing counted, when it
// moves `bytes` in all: copies half of them into the other half. One thread,
// the best of several tries; measured on the first call for each size.
double MemcpyBandwidth(int64_t bytes);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_BENCHMARK_MEMCPY_BANDWIDTH_H_
