#include "server/engine/dialects/block_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <utility>

#include "kernels/float_bounds.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

// Warnings of one struct's unknown keys; the last one counts the others.
constexpr size_t kMaxWarnings = 16;

bool Contains(const NumberRange& range, double number) {
  // Kernels read float32, where a number above 0 must not be 0.
  const bool vanishes = range.above && range.lowest == 0.0 &&
                        range.highest > 1.0 && !kernels::IsAboveZero(number);
  return !vanishes &&
         (range.above ? number > range.lowest : number >= range.lowest) &&
         number <= range.highest &&
         (!range.whole || number == std::floor(number));
}

// "a whole number >= 1", "a number > 0 and <= 1".
std::string ToWords(const NumberRange& range) {
  std::string words = range.whole ? "a whole number" : "a number";
  const bool has_lowest = range.lowest != -NumberRange::kInfinity;
  if (has_lowest) {
    words += Concat(range.above ? " > " : " >= ", FormatNumber(range.lowest));
  }
  if (range.highest != NumberRange::kInfinity) {
    words +=
        Concat(has_lowest ? " and <= " : " <= ", FormatNumber(range.highest));
  }
  return words;
}

}  // namespace

std::string FormatNumber(double number) {
  if (std::isnan(number)) return "nan";
  char buffer[32];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), number);
  return std::string(buffer, end);
}

std::string Describe(const Value& value) {
  switch (value.kind_case()) {
    case Value::kNumberValue:
      return Concat("the number ", FormatNumber(value.number_value()));
    case Value::kStringValue:
      return Concat("the string ", Quote(value.string_value()));
    case Value::kBoolValue:
      return value.bool_value() ? "the boolean true" : "the boolean false";
    case Value::kStructValue:
      return "a struct";
    case Value::kListValue:
      return "a list";
    case Value::kNullValue:
    case Value::KIND_NOT_SET:
      return "null";
  }
  return "null";
}

BlockReader::BlockReader(
    const Struct& block, std::string path, Violations* violations,
    std::map<std::string, std::string, std::less<>> aliases)
    : block_(block),
      path_(std::move(path)),
      violations_(violations),
      aliases_(std::move(aliases)) {}

std::string BlockReader::Path(std::string_view key) const {
  const auto alias = aliases_.find(key);
  return Concat(path_, ".",
                Shorten(alias == aliases_.end() ? key : alias->second));
}

void BlockReader::Violate(std::string_view key, std::string description) const {
  violations_->push_back({Path(key), std::move(description)});
}

const Value* BlockReader::Find(std::string_view key) const {
  const auto field = block_.fields().find(std::string(key));
  return field == block_.fields().end() ? nullptr : &field->second;
}

bool BlockReader::IsNull(std::string_view key) const {
  const Value* value = Find(key);
  return value == nullptr || value->kind_case() == Value::kNullValue ||
         value->kind_case() == Value::KIND_NOT_SET;
}

bool BlockReader::ReadBool(std::string_view key, bool missing) const {
  if (IsNull(key)) return missing;
  const Value& value = *Find(key);
  if (value.kind_case() == Value::kBoolValue) return value.bool_value();
  Violate(key, Concat(key, " must be a boolean (true or false), got ",
                      Describe(value), "."));
  return missing;
}

double BlockReader::ReadNumber(std::string_view key, double missing,
                               const NumberRange& range) const {
  const Value* value = Find(key);
  if (value == nullptr) return missing;
  if (value->kind_case() == Value::kNumberValue &&
      Contains(range, value->number_value())) {
    return value->number_value();
  }
  Violate(key, Concat(key, " must be ", ToWords(range), ", got ",
                      Describe(*value), "."));
  return missing;
}

std::optional<double> BlockReader::ReadOptionalNumber(
    std::string_view key, const NumberRange& range) const {
  if (IsNull(key)) return std::nullopt;
  const double number =
      ReadNumber(key, std::numeric_limits<double>::quiet_NaN(), range);
  if (std::isnan(number)) return std::nullopt;
  return number;
}

int64_t BlockReader::ReadCount(std::string_view key, int64_t missing) const {
  constexpr NumberRange kCounts{
      .lowest = 1.0, .highest = 9007199254740992.0, .whole = true};
  return static_cast<int64_t>(
      ReadNumber(key, static_cast<double>(missing), kCounts));
}

std::string BlockReader::ReadString(std::string_view key,
                                    std::string_view missing) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::string(missing);
  if (value->kind_case() == Value::kStringValue) return value->string_value();
  Violate(key, Concat(key, " must be a string, got ", Describe(*value), "."));
  return std::string(missing);
}

std::optional<size_t> BlockReader::ReadName(
    std::string_view key, std::string_view missing,
    std::span<const std::string_view> names, std::string_view hint) const {
  const Value* value = Find(key);
  // A value that is not a string has an empty string, which is not a name.
  const std::string_view name =
      value == nullptr ? missing : std::string_view(value->string_value());
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) {
    return static_cast<size_t>(found - names.begin());
  }
  Violate(key, Concat("Unknown ", key, ": ", Describe(*value), ". ",
                      DidYouMean(name, names), "Must be one of ",
                      JoinNames(names), ".", hint));
  return std::nullopt;
}

const Struct* BlockReader::ReadStruct(std::string_view key) const {
  if (IsNull(key)) return nullptr;
  const Value& value = *Find(key);
  if (value.kind_case() == Value::kStructValue) return &value.struct_value();
  Violate(key, Concat(key, " must be a struct of fields, got ", Describe(value),
                      "."));
  return nullptr;
}

void BlockReader::CheckKeys(
    std::span<const std::string_view> known, bool ignore,
    const std::function<std::string(std::string_view)>& hint,
    std::vector<std::string>* warnings,
    std::span<const std::string_view> others) const {
  const auto has = [](std::span<const std::string_view> names,
                      std::string_view key) {
    return std::find(names.begin(), names.end(), key) != names.end();
  };
  std::vector<std::string_view> unknown;
  for (const auto& [key, value] : block_.fields()) {
    if (!has(known, key) && !has(others, key)) unknown.push_back(key);
  }
  // A protobuf map has no order; an answer needs one.
  std::sort(unknown.begin(), unknown.end());
  size_t ignored = 0;
  for (const std::string_view key : unknown) {
    if (ignore) {
      if (++ignored > kMaxWarnings) continue;
      warnings->push_back(Concat("Ignored the unknown field ", Path(key), "."));
      continue;
    }
    // Advice takes time, so violations that are only counted have none.
    if (violations_->size() >= Violations::kMaxKept) {
      violations_->push_back({});
      continue;
    }
    std::string advice = hint(key);
    if (advice.empty()) {
      std::string_view nearest = NearestName(key, known);
      if (nearest.empty()) nearest = NearestName(key, others);
      advice = nearest.empty() ? Concat("known fields are ", JoinNames(known))
                               : Concat("did you mean '", nearest, "'?");
    }
    const bool ended = advice.back() == '?' || advice.back() == '.';
    Violate(key, Concat("Unknown field ", Quote(key), ": ", advice,
                        ended ? "" : "."));
  }
  if (ignored > kMaxWarnings) {
    warnings->push_back(Concat("Ignored ", ignored - kMaxWarnings,
                               " more unknown fields of ", path_, "."));
  }
}

}  // namespace counterweight::server
