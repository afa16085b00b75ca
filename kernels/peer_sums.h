// Sums that no metric of Counterweight's own reads: other systems' metrics,
// which their translations report under those systems' names. A spec requests
// them; other specs do not compute what costs something per token. PODs. Names
// and "sums over nothing" as in sums.h.
#ifndef COUNTERWEIGHT_KERNELS_PEER_SUMS_H_
#define COUNTERWEIGHT_KERNELS_PEER_SUMS_H_

#include <cstdint>

#include "kernels/loss_sums.h"
#include "kernels/spec.h"

namespace counterweight::kernels {

// exp(log_prob) of numerator p and denominator q of the drift source. Reader:
// verl.
struct ProbabilitySums {
  double abs_difference;      // sum |p - q|
  double squared_difference;  // sum (p - q)^2
  double max_difference;      // max |p - q|, 0 over nothing
  double p, q, p_squared, q_squared, p_q;
};

// One rule. Reader: verl.
struct PeerRuleSums {
  // y = clamp(x, lower, upper), where lower is 0 for K2 and K3 without a lower
  // bound.
  double clamped;          // of y
  double clamped_squared;  // of y^2
  double row_squared;      // of q^2
  Extrema row_range;       // of q
};

// Zero unless CorrectionSpec::peer_sums. Reader: verl.
struct PeerCorrectionSums {
  ProbabilitySums probability;
  PeerRuleSums rules[kMaxRules];
  double numerator_log_ppl;    // sum -a_i
  double denominator_log_ppl;  // sum -b_i
  Extrema log_ppl_difference_range;
  // SEQUENCE, GEOMETRIC: rows of V by their log ratio before the last clamp.
  Extrema sequence_log_range;
  int64_t sequences_log_low;  // < log lower
  int64_t sequences_high;     // rows of V with a mean raw weight > upper
  int64_t sequences_low;
  double sequence_excess_squared;  // sum (p_i - 1)^2
};

// Zero unless LossSpec::peer_sums, but for padding.
struct PeerLossSums {
  // l of metrics_source over keep. Reader: verl.
  double abs_log_ratio_kept;   // sum |l|
  double safe_log_ratio_kept;  // sum of l clamped at 20
  // As the counts of LossSums, over keep. Reader: verl.
  int64_t clipped_kept, high_kept, low_kept;
  // DPPO, tokens of keep: A = 0 and beyond clip_low, which "clipped" excludes.
  int64_t clipped_zero_kept;
  double clipped_ratio;  // sum over m of clip(r). Reader: SkyRL.
  double ref_log_ratio;  // sum over m of the KL's d. Reader: OpenRLHF.
  // Rows with tokens in m. Shares of the row's tokens that are high or low.
  // Reader: TRL.
  double row_high, row_low;  // sums
  Extrema row_high_range, row_low_range;
  int64_t mixed_rows;  // rows with advantages that differ within m
  // VESPO: sum over all rows of phi, that of A < 0 where all advantages of the
  // row are; in empty rows that of A >= 0, or with measures_padding of the sign
  // of the advantages at masked positions.
  double phi;
  // With measures_padding or counts_padding, whatever peer_sums is. Over masked
  // positions of the rows as sent: sum of k; for PPO_CLIP and CISPO positions
  // that would be high or low, and their r. Readers: TRL, SkyRL.
  double padding_kl;
  int64_t padding_high, padding_low;
  Extrema padding_ratio_range;
};

struct PeerSums {
  PeerCorrectionSums correction;
  PeerLossSums loss;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_PEER_SUMS_H_
