// Typed reading of another system's configuration block, for every dialect.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_BLOCK_READER_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_BLOCK_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/struct.pb.h"
#include "server/engine/names.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Formats a number like Python and YAML, in the shortest form that reads back:
// "0.5", "inf".
std::string FormatNumber(double number);

// Describes a value for messages: "the number 2", "the string 'a'", "null", "a
// list".
std::string Describe(const google::protobuf::Value& value);

// The numbers that a field accepts; never NaN.
struct NumberRange {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  double lowest = -kInfinity;
  // > lowest instead of >= lowest.
  bool above = false;
  double highest = kInfinity;  // inclusive
  bool whole = false;
};

// The largest finite double.
inline constexpr double kLargestDouble = std::numeric_limits<double>::max();
inline constexpr NumberRange kAnyNumber{};
inline constexpr NumberRange kPositive{.lowest = 0.0, .above = true};
inline constexpr NumberRange kNonNegative{.lowest = 0.0};

// Reads one struct of a block. Invalid fields go to *violations with their
// path; the read then returns its default, so that reading continues and finds
// the others.
class BlockReader {
 public:
  // `path` names the struct: "method.dialect.block". `aliases` maps fields to
  // their names in `path` if the struct was made from other fields. All
  // arguments must outlive the reader.
  BlockReader(const google::protobuf::Struct& block, std::string path,
              Violations* violations,
              std::map<std::string, std::string, std::less<>> aliases = {});

  // "method.dialect.block.key".
  std::string Path(std::string_view key) const;

  void Violate(std::string_view key, std::string description) const;

  // Returns null if `key` is absent. A null in the block is a value.
  const google::protobuf::Value* Find(std::string_view key) const;

  // True if `key` is absent or null.
  bool IsNull(std::string_view key) const;

  // Absent or null: `missing`. Anything but a bool is a violation: in Python
  // the string "false" is true, against its writer's intent.
  bool ReadBool(std::string_view key, bool missing) const;

  // Absent: `missing`. Null, as None in Python, and anything else outside
  // `range` is a violation.
  double ReadNumber(std::string_view key, double missing,
                    const NumberRange& range = kAnyNumber) const;

  // Absent or null: nullopt. Otherwise as ReadNumber.
  std::optional<double> ReadOptionalNumber(
      std::string_view key, const NumberRange& range = kAnyNumber) const;

  // A whole number in [1, 2^53]; otherwise as ReadNumber.
  int64_t ReadCount(std::string_view key, int64_t missing) const;

  // Absent: `missing`. Null, as None in Python, and anything else outside
  // `range` is a violation.
  std::string ReadString(std::string_view key, std::string_view missing) const;

  // Returns the index in `names` of the string at `key`, or of `missing`, one
  // of them, if `key` is absent. Otherwise nothing, and a violation that lists
  // the names and the nearest one and ends with the sentence `hint`.
  std::optional<size_t> ReadName(std::string_view key, std::string_view missing,
                                 std::span<const std::string_view> names,
                                 std::string_view hint = {}) const;

  // Null where `key` is absent, null, or not a struct; the last is a violation.
  const google::protobuf::Struct* ReadStruct(std::string_view key) const;

  // Each key outside `known` and `others` is a violation that names the nearest
  // one of them, or, if `ignore`, a sentence of *warnings. `hint` may return a
  // clause about a key, or an empty string. `others`: fields that the system's
  // configuration has too, and that change no answer.
  void CheckKeys(std::span<const std::string_view> known, bool ignore,
                 const std::function<std::string(std::string_view)>& hint,
                 std::vector<std::string>* warnings,
                 std::span<const std::string_view> others = {}) const;

 private:
  const google::protobuf::Struct& block_;
  const std::string path_;
  Violations* const violations_;
  const std::map<std::string, std::string, std::less<>> aliases_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_BLOCK_READER_H_
