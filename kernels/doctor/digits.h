// Numbers in sentences.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_DIGITS_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_DIGITS_H_

#include <charconv>
#include <string>

namespace counterweight::kernels::doctor {

// `digits` significant ones, whatever the locale.
inline std::string Digits(double value, int digits) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value,
                                 std::chars_format::general, digits);
  return std::string(text, end.ptr);
}

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_DIGITS_H_
