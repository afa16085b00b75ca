// The first byte of an input of the target `header`.
#ifndef COUNTERWEIGHT_TESTS_FUZZ_HEADER_OPTIONS_H_
#define COUNTERWEIGHT_TESTS_FUZZ_HEADER_OPTIONS_H_

#include <cstdint>

namespace counterweight::fuzz {

struct HeaderOptions {
  explicit HeaderOptions(uint8_t byte)
      : is_stream((byte & 1) != 0), has_regions((byte & 2) != 0) {}

  bool is_stream;
  bool has_regions;
};

}  // namespace counterweight::fuzz

#endif  // COUNTERWEIGHT_TESTS_FUZZ_HEADER_OPTIONS_H_
