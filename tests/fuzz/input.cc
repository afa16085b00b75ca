#include "tests/fuzz/input.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace counterweight::fuzz {

uint8_t Input::TakeByte() {
  if (size_ == 0) return 0;
  --size_;
  return *data_++;
}

uint64_t Input::TakeBelow(uint64_t bound) {
  uint64_t value = 0;
  for (uint64_t left = bound - 1; left > 0; left >>= 8) {
    value = value << 8 | TakeByte();
  }
  return value % bound;
}

std::string Input::TakeBytes(size_t count) {
  count = std::min(count, size_);
  std::string bytes(reinterpret_cast<const char*>(data_), count);
  data_ += count;
  size_ -= count;
  return bytes;
}

void Expect(bool holds, const char* law, const std::string& detail) {
  if (holds) return;
  std::fprintf(stderr, "broken law: %s%s%s\n", law, detail.empty() ? "" : ": ",
               detail.c_str());
  std::abort();
}

}  // namespace counterweight::fuzz
