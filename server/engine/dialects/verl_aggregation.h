// verl's loss_agg_mode and global_batch_info as reductions of kernels/:
// agg_loss of verl-project/verl @1dda039b, verl/trainer/ppo/core_algos.py.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_AGGREGATION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_AGGREGATION_H_

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/loss_spec.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

enum class VerlAggMode : uint8_t {
  kTokenMean,
  kTokenSum,
  kSeqMeanTokenSum,
  kSeqMeanTokenSumNorm,
  kSeqMeanTokenMean,
};

// Arguments of agg_loss besides the losses and their mask.
struct VerlAggregation {
  // Absent if loss_agg_mode is none of the five.
  std::optional<VerlAggMode> mode = VerlAggMode::kTokenMean;
  double dp_size = 1.0;
  // Over all ranks; absent: counted in this batch.
  std::optional<double> batch_num_tokens;
  std::optional<double> global_batch_size;
  // The further divisor of seq-mean-token-sum-norm besides the number of
  // sequences.
  double norm = 1.0;
  // norm is the padded width, for want of loss_scale_factor.
  bool is_norm_width = false;

  bool has_counts() const { return batch_num_tokens || global_batch_size; }
};

// `actor` reads an ActorConfig, `padded_length` is the width of its batch.
VerlAggregation ReadVerlAggregation(const BlockReader& actor,
                                    const BlockReader& global_batch_info,
                                    int64_t padded_length);

// Requires the counts of means in `modes` if dp_size > 1: one rank's count
// differs from the others'.
void RequireVerlCounts(const VerlAggregation& aggregation,
                       std::span<const VerlAggMode> modes,
                       const BlockReader& global_batch_info);

// Absent counts are those of `over`.
kernels::LossReduction MakeVerlReduction(const VerlAggregation& aggregation,
                                         VerlAggMode mode,
                                         kernels::TokenSet over);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_AGGREGATION_H_
