#include "server/embedded/placement.h"

#include <functional>
#include <string>
#include <utility>

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

std::byte* Placement::Next(int32_t role, int32_t dtype, std::string_view name,
                           int64_t element_size, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* place = nullptr;
  if (size > 0 && request_.place != nullptr) {
    place = request_.place(request_.context, role, dtype, size);
  }
  if (place == nullptr && size > 0 && request_.memory == CW_CUDA) {
    violations_.push_back({server::Concat("outputs[", name, "]"),
                           "was given no place, and the library makes no "
                           "memory on a device"});
  } else if (place == nullptr) {
    place = answer_->Allocate(size);
  } else {
    Check(static_cast<std::byte*>(place), name, element_size, size);
  }
  answer_->places.push_back({place, size});
  return static_cast<std::byte*>(place);
}

void Placement::Check(const std::byte* place, std::string_view name,
                      int64_t element_size, size_t size) {
  const auto fail = [&](std::string description) {
    violations_.push_back(
        {server::Concat("outputs[", name, "]"), std::move(description)});
  };
  if (reinterpret_cast<uintptr_t>(place) %
          static_cast<uintptr_t>(element_size) !=
      0) {
    fail("was placed at an address that is not a multiple of its element");
  }
  const std::string_view wrong = WrongPlace(corrector_, request_.memory, place);
  if (!wrong.empty()) fail(server::Concat("was placed ", wrong));
  for (const std::span<const std::byte> input : inputs_) {
    if (Overlaps(place, size, input.data(), input.size())) {
      fail("was placed where an input lies");
      break;
    }
  }
  for (const cw_bytes& other : answer_->places) {
    if (Overlaps(place, size, other.data, other.size)) {
      fail("was placed where another output lies");
      break;
    }
  }
}

}  // namespace counterweight::embedded
