// Blocks of other systems' configuration.
//
// Input: system, tensors that are present, options, sequences, width, a block
// as JSON or as a Struct.
//
// Checks: without violations the kernels accept the spec.
#include <cstdint>
#include <string>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "kernels/sums.h"
#include "server/engine/dialect.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/laws.h"

namespace counterweight::fuzz {
namespace {

bool ParseBlock(bool is_json, const std::string& bytes,
                google::protobuf::Struct* block) {
  if (!is_json) return block->ParseFromString(bytes);
  return google::protobuf::util::JsonStringToMessage(bytes, block).ok();
}

void CheckTranslation(const server::Translation& translation,
                      const server::RequestFacts& facts) {
  ExpectReadable(translation.violations);
  if (!translation.violations.empty()) return;
  ExpectValid(translation.spec);
  for (const std::string& warning : translation.warnings) {
    Expect(!warning.empty(), "a warning says something");
  }
  Expect(translation.rule_names.size() ==
             static_cast<size_t>(translation.spec.num_rules),
         "every rule has a name");
  Expect(
      translation.groups.empty() ||
          translation.groups.size() == static_cast<size_t>(facts.num_sequences),
      "every row has a group");
  for (const int32_t group : translation.groups) {
    Expect(group >= -1 && group < translation.num_groups,
           "a group is one of num_groups");
  }
  if (!translation.report) return;
  server::MetricMap metrics;
  server::Violations found;
  // An empty batch's sums: every mean is 0 / 0.
  translation.report(kernels::BatchSums{}, &metrics, &found);
  ExpectReadable(found);
}

void CheckBlock(Input input) {
  const auto dialects = server::Dialects();
  const server::Dialect& dialect = dialects[input.TakeBelow(dialects.size())];
  const uint8_t present = input.TakeByte();
  const uint8_t options = input.TakeByte();
  server::RequestFacts facts;
  facts.has_rollout_log_probs = (present & 1) != 0;
  facts.has_old_log_probs = (present & 2) != 0;
  facts.has_current_log_probs = (present & 4) != 0;
  facts.has_ref_log_probs = (present & 8) != 0;
  facts.has_advantages = (present & 16) != 0;
  facts.has_group_ids = (present & 32) != 0;
  facts.wants_loss = (present & 64) != 0;
  facts.num_sequences = static_cast<int64_t>(input.TakeBelow(256));
  facts.padded_length = static_cast<int64_t>(input.TakeBelow(256));
  google::protobuf::Struct block;
  if (!ParseBlock((options & 1) != 0, input.TakeRest(), &block)) return;
  const bool ignore_unknown_fields = (options & 2) != 0;
  CheckTranslation(dialect.translate(block, ignore_unknown_fields, facts),
                   facts);
}

}  // namespace
}  // namespace counterweight::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  counterweight::fuzz::SilenceLibraries();
  counterweight::fuzz::CheckBlock(counterweight::fuzz::Input(data, size));
  return 0;
}
