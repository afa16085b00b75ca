// Runs a corrector on batches whose tensors lie where CUDA knows them.
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

// Blocks of a few rows, buffers of a few hundred tokens: what takes gigabytes
// in production happens in kilobytes.
inline constexpr CudaOptions kSmallOptions = {.block_positions = 300,
                                              .bounce_bytes = 1024};

// Fails the program if there is none.
std::unique_ptr<Corrector> MakeFakeCuda(const CudaOptions& options,
                                        int device = 0);

struct PlacedRun {
  Where inputs = Where::kPageable;
  Where outputs = Where::kPageable;
  // Numbers of rows told to Advance, ascending; rows that have not arrived hold
  // rubbish. Of inputs that the host can write.
  std::vector<int64_t> arrivals;
  bool mask_first = false;
  StopRequest stop;
};

Corrected RunPlaced(Corrector& corrector, const CorrectionSpec& spec,
                    const OwnedBatch& batch, const PlacedRun& run);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_PLACED_RUN_H_
