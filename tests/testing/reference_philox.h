// The reference's random numbers.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_PHILOX_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_PHILOX_H_

#include <array>
#include <cstdint>

namespace counterweight::kernels {

// Philox-4x32-10: J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2,
// 3, 2011.
std::array<uint32_t, 4> ReferencePhilox(std::array<uint32_t, 4> counter,
                                        std::array<uint32_t, 2> key);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_PHILOX_H_
