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
     {BatchCount::kKeptTokens, RowCount::kOne}},
    {v1::LOSS_AGGREGATION_TOKEN_SUM,
     {BatchCount::kOne, RowCount::kOne},
     {BatchCount::kOne, RowCount::kOne}},
    {v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM,
     {BatchCount::kNonemptyRows, RowCount::kOne},
     {BatchCount::kKeptRows, RowCount::kOne}},
    {v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN,
     {BatchCount::kNonemptyRows, RowCount::kTokens},
     {BatchCount::kKeptRows, RowCount::kKeptTokens}},
    {v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM,
     {BatchCount::kNonemptyRows, RowCount::kOne},
     {BatchCount::kKeptRows, RowCount::kOne},
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
  ReductionDecoder(const RequestFacts& facts, const std::string& prefix,
                   Violations* violations)
      : facts_(facts), fields_(prefix, violations) {}

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
    const AggregationRow* const row = FindAggregation(loss.aggregation());
    if (row == nullptr) {
      fields_.Fail("policy_loss.aggregation",
                   "is required: TOKEN_MEAN, TOKEN_SUM, SEQ_MEAN_TOKEN_SUM, "
                   "SEQ_MEAN_TOKEN_MEAN or SEQ_MEAN_TOKEN_SUM_NORM");
      return {};
    }
    const ReductionCounts& counts = kept ? row->kept : row->original;
    kernels::LossReduction reduction{counts.batch, counts.row};
    if (row->has_norm_length) reduction.scale /= NormLength(loss);
    return reduction;
  }

 private:
  double NormLength(const v1::PolicyLoss& loss) {
    if (!loss.has_norm_length()) {
      return facts_.padded_length > 0
                 ? static_cast<double>(facts_.padded_length)
                 : 1.0;
    }
    if (loss.norm_length() > 0.0 && std::isfinite(loss.norm_length())) {
      return loss.norm_length();
    }
    fields_.Fail("policy_loss.norm_length", "must be a finite length > 0");
    return 1.0;
  }

  const RequestFacts& facts_;
  FieldReader fields_;
};

}  // namespace

std::span<const AggregationRow> AggregationRows() { return kAggregationRows; }

kernels::LossReduction DecodeReduction(const v1::PolicyLoss& loss,
                                       const RequestFacts& facts,
                                       const std::string& prefix,
                                       Violations* violations) {
  return ReductionDecoder(facts, prefix, violations).Decode(loss);
}

}  // namespace counterweight::server
