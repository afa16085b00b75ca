// Floating-point modes of the calling thread.
#ifndef COUNTERWEIGHT_KERNELS_FLOAT_MODES_H_
#define COUNTERWEIGHT_KERNELS_FLOAT_MODES_H_

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace counterweight::kernels {

// Sets round to nearest and keeps denormals for the guard's lifetime: a host
// program that flushes denormals to zero must not change the bits.
class DefaultFloatModes {
 public:
#if defined(__x86_64__)
  DefaultFloatModes() : saved_(_mm_getcsr()) {
    constexpr uint32_t kDefault = 0x1f80;  // all exceptions masked
    constexpr uint32_t kFlags = 0x3f;      // sticky, of no effect
    if ((saved_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFloatModes() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
  DefaultFloatModes() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~DefaultFloatModes() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#else
#error "Say here how this processor's rounding and denormal modes are set."
#endif
  DefaultFloatModes(const DefaultFloatModes&) = delete;
  DefaultFloatModes& operator=(const DefaultFloatModes&) = delete;

 private:
#if defined(__x86_64__)
  uint32_t saved_;
#elif defined(__aarch64__)
  uint64_t saved_;
#endif
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_FLOAT_MODES_H_
