// The share of a numeric test that sanitized builds run.
#ifndef TESTS_TESTING_SANITIZED_H_
#define TESTS_TESTING_SANITIZED_H_

namespace counterweight::kernels {

#ifdef COUNTERWEIGHT_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// How many of `cases` random cases to run: all; a tenth, and one at least,
// under sanitizers. Those look at accesses, and few cases reach all of them;
// numbers are compared in full by the release build, which is many times as
// fast. Not for cases that are each a path of its own, such as surrogates.
constexpr int SanitizedSample(int cases) {
  return kSanitized ? (cases + 9) / 10 : cases;
}

}  // namespace counterweight::kernels

#endif  // TESTS_TESTING_SANITIZED_H_
