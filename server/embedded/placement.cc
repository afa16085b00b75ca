#include "server/embedded/placement.h"

#include <functional>
#include <string>
#include <utility>

#include "server/engine/codec_tensors.h"
#include "server/engine/names.h"

namespace counterweight::embedded {
namespace {

bool Overlaps(const std::byte* a, size_t a_size, const void* other,
              size_t b_size) {
  const auto* const b = static_cast<const std::byte*>(other);
  // Pointers of different arrays are ordered by std::less alone.
  const std::less<const std::byte*> before;
  return a_size > 0 && b_size > 0 && before(a, b + b_size) &&
         before(b, a + a_size);
}

}  // namespace

std::string OutputField(int32_t role) {
  return server::Concat(
      "outputs[", server::RoleName(static_cast<v1::TensorRole>(role)), "]");
}

std::string_view WrongPlace(const kernels::Corrector& corrector, int32_t memory,
                            const void* place) {
  const bool wants_device = memory == CW_CUDA;
  switch (corrector.PlaceOf(place)) {
    case kernels::MemoryPlace::kHost:
      return wants_device ? "in no memory of a CUDA device, but request.memory "
                            "is CW_CUDA"
                          : "";
    case kernels::MemoryPlace::kDevice:
      return wants_device ? ""
                          : "on a CUDA device, but request.memory is CW_HOST";
    case kernels::MemoryPlace::kOtherDevice:
      return "on another CUDA device than the one that computes";
  }
  return "";
}

void CheckPlace(const kernels::Corrector* corrector, int32_t memory,
                const CheckedPlace& place,
                std::span<const std::span<const std::byte>> inputs,
                std::span<const cw_bytes> others,
                server::Violations* violations) {
  const auto fail = [&](std::string description) {
    violations->push_back({OutputField(place.role), std::move(description)});
  };
  if (reinterpret_cast<uintptr_t>(place.data) %
          static_cast<uintptr_t>(place.element_size) !=
      0) {
    fail("was placed at an address that is not a multiple of its element");
  }
  const std::string_view wrong =
      corrector == nullptr ? "" : WrongPlace(*corrector, memory, place.data);
  if (!wrong.empty()) fail(server::Concat("was placed ", wrong));
  const auto* const data = static_cast<const std::byte*>(place.data);
  for (const std::span<const std::byte> input : inputs) {
    if (Overlaps(data, place.size, input.data(), input.size())) {
      fail("was placed where an input lies");
      break;
    }
  }
  for (const cw_bytes& other : others) {
    if (Overlaps(data, place.size, other.data, other.size)) {
      fail("was placed where another output lies");
      break;
    }
  }
}

}  // namespace counterweight::embedded
