#include "server/engine/codec_reduction.h"

#include <cmath>
#include <iterator>

#include "server/engine/codec_fields.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::RowCount;

constexpr AggregationRow kAggregationRows[] = {
    {v1::LOSS_AGGREGATION_TOKEN_MEAN,
     {BatchCount::kTokens, RowCount::kOne},
     {BatchCount::kKeptTokens, RowCount::kOne},
     GlobalCount::kTokens},
    {v1::LOSS_AGGREGATION_TOKEN_SUM,
     {BatchCount::kOne, RowCount::kOne},
     {BatchCount::kOne, RowCount::kOne},
     GlobalCount::kNone},
    {v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM,
     {BatchCount::kNonemptyRows, RowCount::kOne},
     {BatchCount::kKeptRows, RowCount::kOne},
     GlobalCount::kSequences},
    {v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN,
     {BatchCount::kNonemptyRows, RowCount::kTokens},
     {BatchCount::kKeptRows, RowCount::kKeptTokens},
     GlobalCount::kSequences},
    {v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM,
     {BatchCount::kNonemptyRows, RowCount::kOne},
     {BatchCount::kKeptRows, RowCount::kOne},
     GlobalCount::kSequences,
     /*has_norm_length=*/true},
};
static_assert(std::size(kAggregationRows) + 1 == v1::LossAggregation_ARRAYSIZE);

const AggregationRow* FindAggregation(v1::LossAggregation wire) {
  for (const AggregationRow& row : kAggregationRows) {
    if (row.wire == wire) return &row;
  }
  return nullptr;
}

class ReductionDecoder {
 public:
  ReductionDecoder(const MethodFacts& facts, const std::string& prefix,
                   Violations* violations)
      : facts_(facts), fields_(prefix, violations), request_("", violations) {}

  kernels::LossReduction Decode(const v1::PolicyLoss& loss) {
    const bool kept = loss.denominator() == v1::LOSS_DENOMINATOR_KEPT;
    const bool global = loss.denominator() == v1::LOSS_DENOMINATOR_GLOBAL;
    const bool sum = loss.aggregation() == v1::LOSS_AGGREGATION_TOKEN_SUM;
    if (!kept && !global && !sum &&
        loss.denominator() != v1::LOSS_DENOMINATOR_ORIGINAL) {
      fields_.Fail("policy_loss.denominator",
                   "is required: ORIGINAL, KEPT or GLOBAL");
      return {};
    }
    if (global && facts_.global_counts == nullptr) {
      request_.Fail("global_counts",
                    "is required by policy_loss.denominator GLOBAL");
      return {};
    }
    const AggregationRow* const row = FindAggregation(loss.aggregation());
    if (row == nullptr) {
      fields_.Fail("policy_loss.aggregation",
                   "is required: TOKEN_MEAN, TOKEN_SUM, SEQ_MEAN_TOKEN_SUM, "
                   "SEQ_MEAN_TOKEN_MEAN or SEQ_MEAN_TOKEN_SUM_NORM");
      return {};
    }
    const ReductionCounts& counts = kept ? row->kept : row->original;
    kernels::LossReduction reduction{counts.batch, counts.row};
    if (global && facts_.global_counts->has_num_ranks()) {
      reduction.scale = static_cast<double>(facts_.global_counts->num_ranks());
    }
    if (row->has_norm_length) reduction.scale /= NormLength(loss);
    if (global) {
      reduction.count = BatchCount::kOne;
      reduction.scale /= CountOfAllRanks(row->global);
    }
    return reduction;
  }

 private:
  double CountOfAllRanks(GlobalCount which) {
    const v1::GlobalCounts& counts = *facts_.global_counts;
    switch (which) {
      case GlobalCount::kNone:
        break;
      case GlobalCount::kTokens:
        return counts.has_num_kept_tokens()
                   ? Count(true, counts.num_kept_tokens(), "num_kept_tokens")
                   : Count(counts.has_num_tokens(), counts.num_tokens(),
                           "num_tokens");
      case GlobalCount::kSequences:
        return Count(counts.has_num_sequences(), counts.num_sequences(),
                     "num_sequences");
    }
    return 1.0;
  }

  // Reads a global count that the loss needs; 1 and a violation if it is
  // absent.
  double Count(bool has, int64_t count, const char* field) {
    if (has && count >= 1) return static_cast<double>(count);
    if (!has) {
      request_.Fail(std::string("global_counts.") + field,
                    "is required by policy_loss.denominator GLOBAL");
    }
    return 1.0;
  }

  double NormLength(const v1::PolicyLoss& loss) {
    if (!loss.has_norm_length()) {
      return facts_.request.padded_length > 0
                 ? static_cast<double>(facts_.request.padded_length)
                 : 1.0;
    }
    if (loss.norm_length() > 0.0 && std::isfinite(loss.norm_length())) {
      return loss.norm_length();
    }
    fields_.Fail("policy_loss.norm_length", "must be a finite length > 0");
    return 1.0;
  }

  const MethodFacts& facts_;
  FieldReader fields_;
  FieldReader request_;
};

// Checks global_counts, used or not.
void CheckGlobalCounts(const v1::GlobalCounts& counts, Violations* violations) {
  const auto check = [&](bool has, double value, const char* field,
                         const char* reason) {
    if (!has || (value > 0.0 && std::isfinite(value))) return;
    violations->push_back({std::string("global_counts.") + field, reason});
  };
  const auto number = [](int64_t count) { return static_cast<double>(count); };
  check(counts.has_num_tokens(), number(counts.num_tokens()), "num_tokens",
        "must be >= 1");
  check(counts.has_num_sequences(), number(counts.num_sequences()),
        "num_sequences", "must be >= 1");
  check(counts.has_num_kept_tokens(), number(counts.num_kept_tokens()),
        "num_kept_tokens", "must be >= 1");
  check(counts.has_num_ranks(), number(counts.num_ranks()), "num_ranks",
        "must be >= 1");
  check(counts.has_weight_sum(), counts.weight_sum(), "weight_sum",
        "must be a finite number > 0");
}

}  // namespace

std::span<const AggregationRow> AggregationRows() { return kAggregationRows; }

kernels::LossReduction DecodeReduction(const v1::PolicyLoss& loss,
                                       const MethodFacts& facts,
                                       const std::string& prefix,
                                       Violations* violations) {
  return ReductionDecoder(facts, prefix, violations).Decode(loss);
}

Result<double> ReadGivenMean(const v1::CorrectRequest& request,
                             const kernels::WeightSpec& weight) {
  Result<double> result;
  if (!request.has_global_counts()) return result;
  const v1::GlobalCounts& counts = request.global_counts();
  CheckGlobalCounts(counts, &result.violations);
  if (!counts.has_weight_sum()) return result;
  if (!weight.normalize) {
    result.violations.push_back(
        {"global_counts.weight_sum",
         "is read only where the weight is normalized"});
    return result;
  }
  const bool by_row = kernels::IsSequenceLevel(weight.level);
  const int64_t count = by_row ? counts.num_sequences() : counts.num_tokens();
  if (count < 1) {
    result.violations.push_back(
        {by_row ? "global_counts.num_sequences" : "global_counts.num_tokens",
         "is required beside weight_sum"});
    return result;
  }
  result.value = counts.weight_sum() / static_cast<double>(count);
  return result;
}

}  // namespace counterweight::server
