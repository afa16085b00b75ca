// Runs a corrector on batches in memory that CUDA knows.
#ifndef COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_PLACED_RUN_H_
#define COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_PLACED_RUN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_corrector.h"
#include "tests/testing/run.h"

namespace counterweight::kernels {

enum class Where : uint8_t {
  kPageable,
  kPinned,
  kDevice,
  kDeviceUnaligned,  // 2 bytes into an allocation
};

// Blocks of a few rows and buffers of a few hundred tokens: kilobytes show
// production's behaviour with gigabytes.
inline constexpr CudaOptions kSmallOptions = {.block_positions = 300,
                                              .resident_positions = 900,
                                              .host_counts = 2000,
                                              .bounce_bytes = 1024,
                                              .separate_arrays = true};

// Ends the program if there is none.
std::unique_ptr<Corrector> MakeFakeCuda(const CudaOptions& options,
                                        int device = 0);

struct PlacedRun {
  Where inputs = Where::kPageable;
  Where outputs = Where::kPageable;
  // Arguments of Advance, ascending; rows that have not arrived hold garbage.
  // For inputs that the host can write.
  std::vector<int64_t> arrivals;
  bool mask_first = false;
  StopRequest stop;
};

Corrected RunPlaced(Corrector& corrector, const CorrectionSpec& spec,
                    const OwnedBatch& batch, const PlacedRun& run);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_PLACED_RUN_H_
