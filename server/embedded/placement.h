// The memory of the outputs of one call.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_PLACEMENT_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/corrector.h"
#include "server/embedded/counterweight.h"
#include "server/engine/violation.h"

namespace counterweight::embedded {

// Returns what is wrong with a place in a request of that `memory`, CW_HOST or
// CW_CUDA: "on another CUDA device ..."; empty if it is right.
std::string_view WrongPlace(const kernels::Corrector& corrector, int32_t memory,
                            const void* place);

// The name of an output in errors.
std::string OutputField(int32_t role);

// A place for an output, and what must not overlap it.
struct CheckedPlace {
  int32_t role;
  const void* data;
  size_t size;
  int64_t element_size;
};

// Appends what is wrong with it in a request of that `memory`. Null: it is
// known to be of that memory.
void CheckPlace(const kernels::Corrector* corrector, int32_t memory,
                const CheckedPlace& place,
                std::span<const std::span<const std::byte>> inputs,
                std::span<const cw_bytes> others,
                server::Violations* violations);

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_PLACEMENT_H_
