// Other systems' configuration blocks, answered with those systems' numbers and
// metric names.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECT_H_

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
#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/corrected_tokens.h"
#include "server/engine/counts_use.h"
#include "server/engine/derived_tensors.h"
#include "server/engine/release.h"
#include "server/engine/row_filter.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Metrics by name.
using MetricMap = std::map<std::string, double>;
using TokenMetrics =
    std::function<void(const CorrectedTokens& tokens,
                       const kernels::BatchSums& sums, MetricMap* metrics)>;

// Host memory that TokenMetrics keep beside a row's buffers, in bytes.
struct TokenMetricMemory {
  int64_t of_position = 0;
  int64_t of_row = 0;

  int64_t Bytes(int64_t positions, int64_t rows) const {
    return positions * of_position + rows * of_row;
  }
};

// A metric without terms, where the other system answers NaN.
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A number of the batch's shape, which notes that a method depends on it.
class ShapeFact {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a number like the others.
  ShapeFact(int64_t value = 0, bool* was_read = nullptr)
      : value_(value), was_read_(was_read) {}

  // NOLINTNEXTLINE(google-explicit-constructor): a number like the others.
  operator int64_t() const {
    if (was_read_ != nullptr) *was_read_ = true;
    return value_;
  }

 private:
  int64_t value_;
  bool* was_read_;
};

// Facts about the request, besides the block, that a dialect can use.
struct RequestFacts {
  bool has_rollout_log_probs = false;
  bool has_old_log_probs = false;
  bool has_current_log_probs = false;
  bool has_ref_log_probs = false;
  bool has_advantages = false;
  // CorrectRequest.group_ids was sent.
  bool has_group_ids = false;
  // The loss or GRADIENT is requested; otherwise a translation does not set
  // spec.loss.
  bool wants_loss = false;
  // CorrectRequest.seed.
  uint64_t seed = 0;
  // CorrectRequest.global_counts was sent; the codec applies them to the
  // translation's reductions.
  bool has_global_counts = false;
  ShapeFact num_sequences;
  // Width of the padded batch, see PackedLayout.padded_length.
  ShapeFact padded_length;
  // method.dialect.release.
  AskedRelease asked;

  // True if the selected release is `release` or newer.
  bool IsSince(const Release& release) const {
    return asked.release >= release;
  }
};

// A translated block. With violations, nothing else is valid.
struct Translation {
  kernels::CorrectionSpec spec;
  // Sentences for CorrectResponse.warnings, e.g. ignored unknown keys.
  std::vector<std::string> warnings;
  Violations violations;
  // Names of the rules, parallel to spec.rules.
  std::vector<std::string> rule_names;
  // Batch::groups, [num_sequences], and their number; empty: no groups.
  std::vector<int32_t> groups;
  int64_t num_groups = 0;
  // True if CorrectRequest.group_ids supplies the groups instead.
  bool uses_group_ids = false;
  // Batch::row_divisors, [num_sequences], where the block has them.
  std::vector<double> row_divisors;
  CountsUse counts_use;
  // True if the answer's loss is NaN for LossSums::count 0, like that system's.
  bool empty_loss_is_nan = false;
  // Converts the finished sums to that system's metrics, or appends violations
  // that only the sums show; the request then fails.
  std::function<void(const kernels::BatchSums& sums, MetricMap* metrics,
                     Violations* violations)>
      report;
  // Adds metrics that no sum has, by a pass over the tokens of a batch in host
  // memory: the same names for every batch with tokens, and some or none of
  // them for one without. Null: there are none.
  TokenMetrics token_metrics;
  TokenMetricMemory token_metric_memory;
  // The answer's weights are those without the last rule, which zeroes them in
  // the loss alone.
  bool last_rule_spares_weights = false;
  // Drops sequences before anything else; its tensors are in host memory.
  std::optional<RowFilter> row_filter;
  // Tensors of its own, made of the rows that the filter leaves; what is read
  // is in host memory.
  DerivedTensors derived;
  // True if `report` may fail a request by more than counts of tokens and
  // sequences.
  bool report_judges = false;
};

// One system. Field paths of violations start with "method.dialect.block.".
struct Dialect {
  std::string_view system;  // "verl"
  // Releases at which answers changed, ascending. The first is the oldest
  // supported one, the last the newest that was read.
  std::span<const DatedRelease> releases;
  Translation (*translate)(const google::protobuf::Struct& block,
                           bool ignore_unknown_fields,
                           const RequestFacts& facts);
};

// Every supported dialect.
std::span<const Dialect> Dialects();

// Null if there is none of that name.
const Dialect* FindDialect(std::string_view system,
                           std::span<const Dialect> dialects = Dialects());

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECT_H_
