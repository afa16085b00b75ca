// Helpers of every fuzz target: choices from the fuzzer's bytes, and reports of
// broken laws.
#ifndef COUNTERWEIGHT_TESTS_FUZZ_INPUT_H_
#define COUNTERWEIGHT_TESTS_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>

// The entry point of every target; libFuzzer and replay.cc call it. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace counterweight::fuzz {

// Reads choices from the front of the fuzzer's bytes. After their end every
// choice is 0.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  size_t remaining() const { return size_; }

  uint8_t TakeByte();
  // One byte decides, with equal chances.
  bool TakeBool() { return (TakeByte() & 1) != 0; }
  // In [0, bound), from as many bytes as bound - 1 has. REQUIRES: bound >= 1.
  uint64_t TakeBelow(uint64_t bound);
  // At most `count` bytes, fewer where fewer remain.
  std::string TakeBytes(size_t count);
  std::string TakeRest() { return TakeBytes(size_); }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Crashes the process if `law` does not hold, so that the fuzzer keeps the
// input. `law` is the expectation, `detail` the finding.
void Expect(bool holds, const char* law, const std::string& detail = "");

}  // namespace counterweight::fuzz

#endif  // COUNTERWEIGHT_TESTS_FUZZ_INPUT_H_
