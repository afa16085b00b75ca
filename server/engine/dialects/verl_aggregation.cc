#include "server/engine/dialects/verl_aggregation.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::LossReduction;
using kernels::RowCount;
using kernels::TokenSet;

// In the order of VerlAggMode.
constexpr std::string_view kAggregationModes[] = {
    "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm",
    "seq-mean-token-mean"};

// Whole in verl; a mean over uneven batches may not be.
constexpr NumberRange kGlobalCount{.lowest = 1.0, .highest = 0x1p53};
// A divisor with a finite quotient.
constexpr NumberRange kDivisor{.lowest = std::numeric_limits<float>::min()};

bool CountsSequences(VerlAggMode mode) {
  return mode != VerlAggMode::kTokenMean && mode != VerlAggMode::kTokenSum;
}

}  // namespace

VerlAggregation ReadVerlAggregation(const BlockReader& actor,
                                    const BlockReader& global_batch_info,
                                    int64_t padded_length) {
  VerlAggregation aggregation;
  const auto mode =
      actor.ReadName("loss_agg_mode", kAggregationModes[0], kAggregationModes);
  aggregation.mode.reset();
  if (mode) aggregation.mode = static_cast<VerlAggMode>(*mode);
  if (!global_batch_info.IsNull("dp_size")) {
    aggregation.dp_size =
        static_cast<double>(global_batch_info.ReadCount("dp_size", 1));
  }
  aggregation.batch_num_tokens =
      global_batch_info.ReadOptionalNumber("batch_num_tokens", kGlobalCount);
  aggregation.global_batch_size =
      global_batch_info.ReadOptionalNumber("global_batch_size", kGlobalCount);
  if (aggregation.mode == VerlAggMode::kSeqMeanTokenSumNorm) {
    const std::optional<double> factor =
        actor.ReadOptionalNumber("loss_scale_factor", kDivisor);
    aggregation.is_norm_width = !factor;
    aggregation.norm = factor.value_or(
        static_cast<double>(std::max<int64_t>(padded_length, 1)));
  }
  return aggregation;
}

void RequireVerlCounts(const VerlAggregation& aggregation,
                       std::span<const VerlAggMode> modes,
                       const BlockReader& global_batch_info) {
  if (aggregation.dp_size <= 1.0) return;
  const auto require = [&](std::string_view key, bool needed) {
    if (!needed || !global_batch_info.IsNull(key)) return;
    global_batch_info.Violate(
        key, Concat(key,
                    " is required where dp_size is more than 1: the loss "
                    "is a mean over all ranks."));
  };
  require("batch_num_tokens",
          std::find(modes.begin(), modes.end(), VerlAggMode::kTokenMean) !=
              modes.end());
  require("global_batch_size",
          std::any_of(modes.begin(), modes.end(), CountsSequences));
}

LossReduction MakeVerlReduction(const VerlAggregation& aggregation,
                                VerlAggMode mode, TokenSet over) {
  const bool kept = over == TokenSet::kKept;
  LossReduction reduction;
  reduction.scale = aggregation.dp_size;
  reduction.count = BatchCount::kOne;
  const auto divide = [&](const std::optional<double>& given, BatchCount own) {
    if (given) {
      reduction.scale /= *given;
    } else {
      reduction.count = own;
    }
  };
  if (mode == VerlAggMode::kTokenMean) {
    divide(aggregation.batch_num_tokens,
           kept ? BatchCount::kKeptTokens : BatchCount::kTokens);
  }
  if (CountsSequences(mode)) {
    divide(aggregation.global_batch_size,
           kept ? BatchCount::kKeptRows : BatchCount::kNonemptyRows);
  }
  if (mode == VerlAggMode::kSeqMeanTokenSumNorm) {
    reduction.scale /= aggregation.norm;
  }
  if (mode == VerlAggMode::kSeqMeanTokenMean) {
    reduction.row = kept ? RowCount::kKeptTokens : RowCount::kTokens;
  }
  return reduction;
}

}  // namespace counterweight::server
