// Faults of a batch, each with a name, its two numbers, an example, and the way
// out.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_FINDING_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_FINDING_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace counterweight::kernels::doctor {

// In the order of the table (table.cc), which has a row for each.
enum class Name : uint8_t {
  kNonFinite,
  kNoTokens,
  kShifted,
  kCountOffByOne,
  kLog10,
  kLog2,
  kProbabilities,
  kWrongSign,
  kCumulative,
  kRowConstant,
  kRepeatedValues,
  kSentinel,
  kPositiveLogProbs,
  kMaskCoversPrompt,
  kMaskEarly,
  kMaskLate,
  kMaskCoversPadding,
  kLastTokenMissing,
  kTailRetokenised,
  kRowsPermuted,
  kUnmatched,
  kDuplicatedRows,
  kTemperature,
  kTruncatedSupport,
  kSwapped,
  kStaleCurrent,
  kRolloutNotSampling,
  kOldEqualsRollout,
  kCurrentEqualsRollout,
  kCurrentEqualsOld,
  kBf16Rounded,
  kFp16Rounded,
  kAdvantagesEqual,
  kAdvantagesOneSign,
  kAdvantagesNotCentred,
  kAdvantagesZero,
  kLast = kAdvantagesZero
};
inline constexpr int kNumNames = static_cast<int>(Name::kLast) + 1;

enum class Severity : uint8_t {
  kNote,     // may be meant so
  kWarning,  // rarely meant so
  kError     // the batch is wrong
};

// The tensor that a finding is about.
enum class Stream : uint8_t {
  kNone,
  kRollout,
  kOld,
  kCurrent,
  kMask,
  kAdvantages
};

// A number beside observed and repaired.
struct Evidence {
  const char* name;  // of static storage
  double value;
};

inline constexpr double kNotTried = std::numeric_limits<double>::quiet_NaN();

struct Finding {
  Name name = Name::kNoTokens;
  Severity severity = Severity::kError;
  // In (0, 1]: 1 for what counts prove.
  double confidence = 1.0;
  Stream stream = Stream::kNone;
  // Mean distance of the two log-probs of a token, capped at 4 nats, as sent
  // and with the fault undone; kNotTried where there is nothing to undo.
  double observed = kNotTried;
  double repaired = kNotTried;
  // A word that numbers do not give, such as "early"; of static storage.
  const char* detail = "";
  std::vector<Evidence> evidence;
  // The first example: sequence, and position counted from its first element as
  // sent; -1 if none.
  int64_t sequence = -1;
  int64_t position = -1;
};

// One row of the table of names.
struct Description {
  Name name;
  const char* text;  // "shifted"
  Severity severity;
  // A clause for readers of the table.
  const char* meaning;
  // The fault, with {stream}, {detail}, {observed}, {repaired} and names of
  // the evidence in braces.
  const char* sentence;
  const char* way_out;
};

const Description& Describe(Name name);
// The name of the tensor, such as "old_log_probs"; "" for kNone.
const char* NameOf(Stream stream);
// "error", "warning" or "note".
const char* NameOf(Severity severity);
// One or two sentences: what is found, where, and the way out.
std::string Sentence(const Finding& finding);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_FINDING_H_
