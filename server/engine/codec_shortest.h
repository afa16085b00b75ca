// Restores the decimal numbers that a user wrote. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_SHORTEST_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_SHORTEST_H_

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace counterweight::server {

// Returns the shortest decimal number near `guess` that `decode` turns into
// `value`, bit for bit; `guess` itself if there is none.
template <class Decode>
double Shortest(double guess, double value, const Decode& decode) {
  constexpr int kMaxDigits = 17;
  for (int digits = 1; digits <= kMaxDigits; ++digits) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.*g", digits, guess);
    const double candidate = std::strtod(text, nullptr);
    if (decode(candidate) == value) return candidate;
  }
  // The guess is rounded, so the number may be its neighbour.
  for (const double end : {-HUGE_VAL, HUGE_VAL}) {
    const double candidate = std::nextafter(guess, end);
    if (decode(candidate) == value) return candidate;
  }
  return guess;
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_SHORTEST_H_
