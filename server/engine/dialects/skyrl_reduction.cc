#include "server/engine/dialects/skyrl_reduction.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace counterweight::server {
namespace {

using google::protobuf::ListValue;
using google::protobuf::Value;
using kernels::BatchCount;
using kernels::LossReduction;
using kernels::RowCount;

constexpr std::string_view kReduction = "loss_reduction";
constexpr std::string_view kMaxSeqLen = "max_seq_len";
constexpr std::string_view kMicroBatchSize = "micro_batch_size";
constexpr std::string_view kPromptBoundaries = "prompt_boundaries";

constexpr std::string_view kReductions[] = {
    "token_mean", "token_mean_legacy", "sequence_mean",
    "seq_mean_token_sum_norm", "prompt_mean"};

// Initializes rows without a group.
void StartGroups(int64_t num_groups, const RequestFacts& facts,
                 Translation* translation) {
  translation->num_groups = num_groups;
  translation->groups.assign(static_cast<size_t>(facts.num_sequences), -1);
}

bool HasUngroupedRows(const Translation& translation) {
  const std::vector<int32_t>& groups = translation.groups;
  return std::find(groups.begin(), groups.end(), -1) != groups.end();
}

// Reads one [start, end) of rows; returns nothing if it is invalid.
std::optional<std::pair<int64_t, int64_t>> ReadRows(const Value& value,
                                                    int64_t num_sequences) {
  if (value.kind_case() != Value::kListValue ||
      value.list_value().values_size() != 2) {
    return std::nullopt;
  }
  int64_t ends[2];
  for (int i = 0; i < 2; ++i) {
    const Value& end = value.list_value().values(i);
    const double number = end.number_value();
    if (end.kind_case() != Value::kNumberValue ||
        !(number >= 0.0 && number <= static_cast<double>(num_sequences)) ||
        number != std::floor(number)) {
      return std::nullopt;
    }
    ends[i] = static_cast<int64_t>(number);
  }
  if (ends[0] > ends[1]) return std::nullopt;
  return std::pair(ends[0], ends[1]);
}

// Each prompt is a group. The first wrong one is a violation.
void ReadPrompts(const BlockReader& reader, const RequestFacts& facts,
                 Translation* translation) {
  const Value& value = *reader.Find(kPromptBoundaries);
  if (value.kind_case() != Value::kListValue ||
      value.list_value().values().empty()) {
    reader.Violate(kPromptBoundaries,
                   Concat(kPromptBoundaries,
                          " must be a list of [start, end) pairs of rows, at "
                          "least one, got ",
                          Describe(value), "."));
    return;
  }
  const ListValue& prompts = value.list_value();
  StartGroups(prompts.values_size(), facts, translation);
  for (int p = 0; p < prompts.values_size(); ++p) {
    const std::string key =
        Concat(kPromptBoundaries, "[", std::to_string(p), "]");
    const auto rows = ReadRows(prompts.values(p), facts.num_sequences);
    if (!rows) {
      reader.Violate(key, Concat(key,
                                 " must be two whole numbers [start, end) with "
                                 "0 <= start <= end <= ",
                                 std::to_string(facts.num_sequences),
                                 ", the number of sequences."));
      return;
    }
    for (int64_t row = rows->first; row < rows->second; ++row) {
      int32_t& group = translation->groups[static_cast<size_t>(row)];
      if (group >= 0) {
        reader.Violate(key, Concat(key, " holds row ", std::to_string(row),
                                   ", which is in another prompt already."));
        return;
      }
      group = p;
    }
  }
}

void ReadPromptMean(const BlockReader& reader, const RequestFacts& facts,
                    Translation* translation) {
  if (!facts.wants_loss) return;
  if (!reader.IsNull(kPromptBoundaries)) {
    ReadPrompts(reader, facts, translation);
  } else if (facts.has_group_ids) {
    translation->uses_group_ids = true;
  } else {
    reader.Violate(kPromptBoundaries,
                   "loss_reduction 'prompt_mean' requires prompt_boundaries, a "
                   "list of [start, end) pairs of rows, or the request's "
                   "group_ids.");
  }
}

// Each full micro-batch is a group; SkyRL scales the rows after the last full
// one to 0.
void ReadMicroBatches(const BlockReader& reader, const RequestFacts& facts,
                      Translation* translation) {
  if (!facts.wants_loss) return;
  if (reader.IsNull(kMicroBatchSize)) {
    reader.Violate(kMicroBatchSize,
                   "loss_reduction 'token_mean_legacy' requires "
                   "micro_batch_size, the number of rows of one micro-batch.");
    return;
  }
  const int64_t size = reader.ReadCount(kMicroBatchSize, 1);
  if (size > facts.num_sequences) {
    reader.Violate(kMicroBatchSize,
                   Concat(kMicroBatchSize, " ", std::to_string(size),
                          " exceeds the number of sequences, ",
                          std::to_string(facts.num_sequences),
                          ": no micro-batch would be full, and SkyRL's loss "
                          "would be 0."));
    return;
  }
  StartGroups(facts.num_sequences / size, facts, translation);
  for (int64_t row = 0; row < translation->num_groups * size; ++row) {
    translation->groups[static_cast<size_t>(row)] =
        static_cast<int32_t>(row / size);
  }
}

// Returns 1 and a violation if it is missing.
double ReadMaxSeqLen(const BlockReader& reader) {
  if (!reader.IsNull(kMaxSeqLen)) {
    return static_cast<double>(reader.ReadCount(kMaxSeqLen, 1));
  }
  reader.Violate(kMaxSeqLen,
                 "max_seq_len must be set with loss_reduction "
                 "'seq_mean_token_sum_norm': losses are divided by it.");
  return 1.0;
}

}  // namespace

void ReadSkyrlReduction(const BlockReader& reader, const RequestFacts& facts,
                        kernels::LossSpec* loss, Translation* translation) {
  LossReduction& reduction = loss->reduction;
  const auto index = reader.ReadName(kReduction, kReductions[0], kReductions);
  if (!index) return;
  const std::string_view name = kReductions[*index];
  if (name == "token_mean") {
    reduction = {BatchCount::kTokens, RowCount::kOne, 1.0};
  } else if (name == "sequence_mean") {
    reduction = {BatchCount::kRows, RowCount::kTokens, 1.0};
  } else if (name == "seq_mean_token_sum_norm") {
    reduction = {BatchCount::kRows, RowCount::kOne,
                 1.0 / ReadMaxSeqLen(reader)};
  } else {
    reduction = {BatchCount::kGroups, RowCount::kGroupTokens, 1.0};
    (name == "prompt_mean" ? ReadPromptMean : ReadMicroBatches)(reader, facts,
                                                                translation);
    // Their scaled advantages are 0 in SkyRL's metrics too.
    if (HasUngroupedRows(*translation)) loss->prescales_advantages = true;
  }
}

}  // namespace counterweight::server
