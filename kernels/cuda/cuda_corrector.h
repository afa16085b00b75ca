// The CUDA backend with its settings; callers take MakeCudaCorrector of
// corrector.h, tests this one.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_CUDA_CORRECTOR_H_
#define COUNTERWEIGHT_KERNELS_CUDA_CUDA_CORRECTOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/corrector.h"

namespace counterweight::kernels {

struct CudaOptions {
  // Rows go over the bus and are computed in blocks of about so many positions;
  // a longer row is a block by itself. 2^22 positions of three tensors and a
  // mask are 52 MiB: 1 ms on a PCIe 5 bus, against 0.1 ms of launches.
  int64_t block_positions = int64_t{1} << 22;
  // The same where nothing but the mask crosses the bus: 2^26 positions are
  // less than 1 ms of the device's memory.
  int64_t resident_positions = int64_t{1} << 26;
  // Positions of a batch up to which the host counts a mask in its memory. Of
  // more, the device does: a host takes a tenth of a second for a gigabyte,
  // five times as long as the bus.
  int64_t host_counts = int64_t{1} << 20;
  // Size of a pinned staging buffer for pageable memory; a run has kBounceSlots
  // of them for each direction.
  int64_t bounce_bytes = int64_t{4} << 20;
  // Device memory for batches; 0: 90 % of what is free when the backend starts.
  int64_t memory_bytes = 0;
  // Shared memory of a walk's block; 0: all that the device grants.
  int shared_bytes = 0;
  // Makes each array of a run an allocation of its own, for memory checkers,
  // instead of all of them one.
  bool separate_arrays = false;
  // Maximum number of runs on the device at a time; others wait for their turn.
  int concurrent_runs = 8;
};

// Null, and *error a sentence, if there is no such device.
std::unique_ptr<Corrector> MakeCudaCorrector(int device,
                                             const CudaOptions& options,
                                             std::string* error);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_CUDA_CORRECTOR_H_
