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

// What agg_loss is told beside the losses and their mask.
struct VerlAggregation {
  // Nothing where loss_agg_mode is none of the five.
  std::optional<VerlAggMode> mode = VerlAggMode::kTokenMean;
  double dp_size = 1.0;
  // Over all ranks; absent: counted in this batch.
  std::optional<double> batch_num_tokens;
  std::optional<double> global_batch_size;
  // What seq-mean-token-sum-norm divides by beside the number of sequences.
  double norm = 1.0;
};

// `actor` reads an ActorConfig, `padded_length` is the width of its batch.
VerlAggregation ReadVerlAggregation(const BlockReader& actor,
                                    const BlockReader& global_batch_info,
                                    int64_t padded_length);

// The counts that a mean in `modes` cannot do without where dp_size > 1: what
// one rank counts is not what the others do.
void RequireVerlCounts(const VerlAggregation& aggregation,
                       std::span<const VerlAggMode> modes,
                       const BlockReader& global_batch_info);

// Counts that are not given are those of `over`.
kernels::LossReduction MakeVerlReduction(const VerlAggregation& aggregation,
                                         VerlAggMode mode,
                                         kernels::TokenSet over);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_AGGREGATION_H_
