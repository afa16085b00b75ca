// The memory of the outputs of one call.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_PLACEMENT_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/corrector.h"
#include "server/embedded/answer.h"
#include "server/embedded/counterweight.h"
#include "server/engine/violation.h"

namespace counterweight::embedded {

// Returns what is wrong with a place in a request of that `memory`, CW_HOST or
// CW_CUDA: "on another CUDA device ..."; empty if it is right.
std::string_view WrongPlace(const kernels::Corrector& corrector, int32_t memory,
                            const void* place);

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

// Requests memory from the caller and checks the answer.
class Placement {
 public:
  // REQUIRES: the arguments outlive this object.
  Placement(const cw_request& request,
            const std::vector<std::span<const std::byte>>& inputs,
            const kernels::Corrector& corrector, Answer* answer)
      : request_(request),
        inputs_(inputs),
        corrector_(corrector),
        answer_(answer) {}

  // Returns the memory of the answer's next output, never null if there are no
  // violations.
  std::byte* Next(int32_t role, int32_t dtype, int64_t element_size,
                  int64_t bytes);

  const server::Violations& violations() const { return violations_; }

 private:
  const cw_request& request_;
  const std::vector<std::span<const std::byte>>& inputs_;
  const kernels::Corrector& corrector_;
  Answer* const answer_;
  server::Violations violations_;
};

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_PLACEMENT_H_
