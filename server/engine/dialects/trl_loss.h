// TRL's policy loss, from huggingface/trl @f2cd5771 and releases up to 1.16.0
// (releases.h): GRPOConfig's fields (trl/trainer/grpo_config.py) and
// GRPOTrainer._compute_loss (trl/trainer/grpo_trainer.py). README.md has the
// decisions.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_LOSS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_LOSS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

// loss_type.
enum class TrlLossType : uint8_t {
  kGrpo,
  kBnpo,
  kDrGrpo,
  kDapo,
  kLuspo,
  kCispo,
  kSapo,
  kVespo
};

// "dr_grpo".
std::string_view Name(TrlLossType type);

// The ranges hold if the loss type reads the field and the request wants a
// loss.
struct TrlLoss {
  TrlLossType type = TrlLossType::kDapo;
  // importance_sampling_level "sequence": one ratio per row.
  bool sequence_level = false;
  double epsilon = 0.2;       // >= 0
  double epsilon_high = 0.2;  // >= 0; CISPO: the cap of the ratio itself
  double delta = std::numeric_limits<double>::infinity();  // > 0
  double beta = 0.0;                                       // >= 0, finite
  bool use_bias_correction_kl = true;  // before 1.10.0: false
  // > 0, finite
  double sapo_temperature_pos = 1.0;
  double sapo_temperature_neg = 1.05;
  // finite
  double vespo_k_pos = 2.0;
  double vespo_lambda_pos = 3.0;
  double vespo_k_neg = 3.0;
  double vespo_lambda_neg = 2.0;
  // >= 1
  int64_t max_completion_length = 512;  // before 1.10.0: 256
  int64_t gradient_accumulation_steps = 1;
  // Micro-batches of a generation. Before 1.9.1 no loss reads it.
  int64_t steps_per_generation = 1;
  int64_t num_processes = 1;
  // Tokens of the generation batch on all ranks, >= 0. Absent: this batch's.
  std::optional<double> num_items_in_batch;
  // True before 1.10.0: luspo averages over all positions of its rows.
  bool luspo_counts_padding = false;

  // True for the losses that divide by num_items_in_batch.
  bool divides_by_items() const {
    return type == TrlLossType::kDapo || type == TrlLossType::kCispo ||
           type == TrlLossType::kVespo;
  }
  // True for the losses that clip the ratio: grpo, bnpo, dr_grpo, dapo, luspo.
  bool clips_ratio() const { return type <= TrlLossType::kLuspo; }
};

// Settings that TRL refuses are always violations. If the request wants a loss,
// settings that silently do harm there are violations too, and TRL's warnings
// go to *warnings. `weight` is the correction's.
TrlLoss ReadTrlLoss(const BlockReader& reader,
                    const kernels::WeightSpec& weight,
                    const RequestFacts& facts,
                    std::vector<std::string>* warnings);

// TRL reads counts over all processes where it divides by num_items_in_batch.
CountsUse TrlCountsUse(const BlockReader& reader, const TrlLoss& loss);

// REQUIRES: ReadTrlLoss() found no violations, and the request wants a loss.
kernels::LossSpec MakeTrlLossSpec(const TrlLoss& loss,
                                  const kernels::WeightSpec& weight,
                                  const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_LOSS_H_
