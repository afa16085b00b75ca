// Other systems' configuration blocks, accepted as they are and answered with
// those systems' numbers and metric names.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_DIALECT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_DIALECT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/struct.pb.h"
#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/dialects/release.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Metrics by name.
using MetricMap = std::map<std::string, double>;

// What a dialect may know of the request beside its block.
struct RequestFacts {
  bool has_rollout_log_probs = false;
  bool has_old_log_probs = false;
  bool has_current_log_probs = false;
  bool has_ref_log_probs = false;
  bool has_advantages = false;
  // CorrectRequest.group_ids was sent.
  bool has_group_ids = false;
  // The loss or GRADIENT was asked for; without, a translation leaves
  // spec.loss alone.
  bool wants_loss = false;
  // CorrectRequest.seed.
  uint64_t seed = 0;
  int64_t num_sequences = 0;
  // Width of the padded batch, see PackedLayout.padded_length.
  int64_t padded_length = 0;
  // method.dialect.release.
  AskedRelease asked;

  // True if the release that counts is `release` or newer.
  bool IsSince(const Release& release) const {
    return asked.release >= release;
  }
};

// A block in our words. If `violations` is not empty nothing else is valid.
struct Translation {
  kernels::CorrectionSpec spec;
  // The importance weight exists in that system's answer.
  bool has_weights = false;
  // Sentences for CorrectResponse.warnings, e.g. ignored unknown keys.
  std::vector<std::string> warnings;
  Violations violations;
  // Names of the rules, parallel to spec.rules.
  std::vector<std::string> rule_names;
  // Batch::groups, [num_sequences], and their number; empty: no groups.
  std::vector<int32_t> groups;
  int64_t num_groups = 0;
  // Take groups from CorrectRequest.group_ids instead.
  bool uses_group_ids = false;
  // The answer's loss is NaN where LossSums::count is 0, as that system's.
  bool empty_loss_is_nan = false;
  // Reads the finished sums into that system's metrics, or appends to
  // `violations` what can be seen only then; the request then fails.
  std::function<void(const kernels::BatchSums& sums, MetricMap* metrics,
                     Violations* violations)>
      report;
  // `report` may fail a request by more than counts of tokens and sequences.
  bool report_judges = false;
};

// One system. Field paths of violations start with "method.dialect.block.".
struct Dialect {
  std::string_view system;  // "verl"
  // Those at which answers changed, ascending. The first is the oldest that is
  // understood, the last the newest that was read.
  std::span<const DatedRelease> releases;
  Translation (*translate)(const google::protobuf::Struct& block,
                           bool ignore_unknown_fields,
                           const RequestFacts& facts);
};

// Every dialect this server understands.
std::span<const Dialect> Dialects();

// Null if there is none of that name.
const Dialect* FindDialect(std::string_view system,
                           std::span<const Dialect> dialects = Dialects());

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_DIALECT_H_
