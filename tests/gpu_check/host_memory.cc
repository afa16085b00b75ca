#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/gpu_check/memory.h"

namespace counterweight::kernels {
namespace {

class HostMemory final : public Memory {
 public:
  void* Allocate(size_t bytes) override { return std::malloc(bytes); }
  void Free(void* memory) override { std::free(memory); }
  bool Copy(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return true;
  }
};

class PinnedMemory final : public Memory {
 public:
  explicit PinnedMemory(Corrector& corrector) : corrector_(corrector) {}
  void* Allocate(size_t bytes) override {
    return corrector_.AllocateHost(bytes);
  }
  void Free(void* memory) override { corrector_.FreeHost(memory); }
  bool Copy(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return true;
  }

 private:
  Corrector& corrector_;
};

}  // namespace

std::unique_ptr<Memory> MakePinnedMemory(Corrector& corrector) {
  return std::make_unique<PinnedMemory>(corrector);
}

std::unique_ptr<Memory> MakeHostMemory() {
  return std::make_unique<HostMemory>();
}

std::unique_ptr<Memory> MakeFastestHostMemory(Corrector& corrector) {
  std::unique_ptr<Memory> pinned = MakePinnedMemory(corrector);
  return Block(*pinned, 1).data() != nullptr ? std::move(pinned)
                                             : MakeHostMemory();
}

}  // namespace counterweight::kernels
