#include <cstdlib>
#include <cstring>

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

}  // namespace

std::unique_ptr<Memory> MakeHostMemory() {
  return std::make_unique<HostMemory>();
}

}  // namespace counterweight::kernels
