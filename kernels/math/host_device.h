// Marks of functions that CPU and GPU share.
//
// Every translation unit that is compiled for an instruction set of its own
// defines COUNTERWEIGHT_ISA, and all inline functions below live in an inline
// namespace of that name: two copies of one function never merge at link time,
// which would let an AVX-512 copy run on a machine without it.
#ifndef COUNTERWEIGHT_KERNELS_MATH_HOST_DEVICE_H_
#define COUNTERWEIGHT_KERNELS_MATH_HOST_DEVICE_H_

#ifndef COUNTERWEIGHT_ISA
#define COUNTERWEIGHT_ISA isa_generic
#endif

#ifdef __CUDACC__
// Code is written for one lane at a time; tests define it to run that code on a
// CPU.
#define COUNTERWEIGHT_ONE_LANE
#define COUNTERWEIGHT_HD __host__ __device__ __forceinline__
#define COUNTERWEIGHT_RARE COUNTERWEIGHT_HD
#define COUNTERWEIGHT_INLINE_LAMBDA
#define COUNTERWEIGHT_IVDEP
// A tile that is indexed by a loop's counter stays in registers only if the
// loop is unrolled.
#define COUNTERWEIGHT_UNROLL _Pragma("unroll")
// Keeps code that rarely runs short.
#define COUNTERWEIGHT_NO_UNROLL _Pragma("unroll 1")
#else
#define COUNTERWEIGHT_HD inline __attribute__((always_inline))
// A function that is seldom called, and not inlined where that takes time.
#define COUNTERWEIGHT_RARE inline __attribute__((noinline, cold))
// A lambda that is not inlined keeps the loop around it scalar.
#define COUNTERWEIGHT_INLINE_LAMBDA __attribute__((always_inline))
// Lanes never alias each other; without the pragma g++ 12 takes 9 ns a token.
#define COUNTERWEIGHT_IVDEP _Pragma("GCC ivdep")
#define COUNTERWEIGHT_UNROLL
#define COUNTERWEIGHT_NO_UNROLL
#endif

#endif  // COUNTERWEIGHT_KERNELS_MATH_HOST_DEVICE_H_
