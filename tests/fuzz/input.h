// What every fuzz target needs: to cut the fuzzer's bytes into choices, and to
// say which law was broken.
#ifndef COUNTERWEIGHT_TESTS_FUZZ_INPUT_H_
#define COUNTERWEIGHT_TESTS_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>

// The entry point of every target; libFuzzer and replay.cc call it. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace counterweight::fuzz {

// Reads choices from the front of the fuzzer's bytes. Where they are used up
// every choice is 0.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  size_t remaining() const { return size_; }

  uint8_t TakeByte();
  // Even: one byte is enough for the choice of true.
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

// Ends the process where `law` does not hold, as a crash that a fuzzer keeps
// the input of. `law` says what should be, `detail` what is.
void Expect(bool holds, const char* law, const std::string& detail = "");

}  // namespace counterweight::fuzz

#endif  // COUNTERWEIGHT_TESTS_FUZZ_INPUT_H_
