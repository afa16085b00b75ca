// For each system the releases since which some blocks have other answers, and
// names of the changes. README.md describes the oldest release.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_RELEASES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_RELEASES_H_

#include "server/engine/release.h"

namespace counterweight::server {

// @1dda039b, which the older answers are of, equals 0.9.0.
// It needs the count of that mode where dp_size > 1.
inline constexpr Release kVerlGspoByLossAggMode{0, 9, 1};
inline constexpr DatedRelease kVerlReleases[] = {
    {{0, 9, 0}, ""},
    {kVerlGspoByLossAggMode,
     "loss_mode gspo aggregates by loss_agg_mode, no longer always by "
     "seq-mean-token-mean"},
};

// @f2cd5771, which the older answers are of, equals 1.9.0.
// The divisor's steps_per_generation, absent, follows from
// generation_batch_size, else it equals gradient_accumulation_steps.
inline constexpr Release kTrlStepsPerGeneration{1, 9, 1};
// The mean over rows of the masked sum, with one advantage per token too.
inline constexpr Release kTrlLuspoByMask{1, 10, 0};
inline constexpr Release kTrlKlCorrectedByDefault{1, 10, 0};
inline constexpr Release kTrlCompletionOf512{1, 10, 0};
// Its log ratio is 0 everywhere; sampling/sampling_logp_difference/* leaves it
// out, and non_finite_tokens counts it. Under DROP or NEUTRALIZE the request's
// policy decides instead. Infinities are refused (TRL: the largest float).
inline constexpr Release kTrlUnknownSampler{1, 11, 0};
inline constexpr Release kTrlOwnLossOnly{1, 14, 0};
inline constexpr DatedRelease kTrlReleases[] = {
    {{1, 9, 0}, ""},
    {kTrlStepsPerGeneration,
     "dapo, cispo and vespo divide by gradient_accumulation_steps / "
     "steps_per_generation too"},
    {kTrlLuspoByMask,
     "luspo leaves masked positions out; use_bias_correction_kl is true and "
     "max_completion_length 512 by default, no longer false and 256"},
    {kTrlUnknownSampler,
     "a NaN of rollout_log_probs is an unknown number, not an error"},
    {kTrlOwnLossOnly,
     "use_liger_kernel changes no number, and goes with "
     "off_policy_mask_threshold"},
    {{1, 16, 0}, "the same answers as 1.14.0"},
};

// @3c3be623, which the older answers are of, equals 0.11.0.
inline constexpr Release kOpenrlhfUnbiasedKl{0, 11, 1};
inline constexpr Release kOpenrlhfCorrectionByLevel{0, 11, 2};
inline constexpr DatedRelease kOpenrlhfReleases[] = {
    {{0, 11, 0}, ""},
    {kOpenrlhfUnbiasedKl, "unbiased_gradient of the KL loss"},
    {kOpenrlhfCorrectionByLevel,
     "is_correction_level, is_correction_mode and is_correction_gating instead "
     "of enable_vllm_is_correction and vllm_is_*; loss_agg_mode; "
     "is_filter_ratio"},
};

// @a9564572, which the answers are of, equals 0.4.0.
inline constexpr Release kSkyrlCispoAnchor{0, 4, 0};
inline constexpr DatedRelease kSkyrlReleases[] = {
    {{0, 3, 0}, ""},
    {kSkyrlCispoAnchor,
     "cispo_eps_clip_low is 1 and cispo_eps_clip_high 4 by default, no longer "
     "0 and 5; cispo_anchor; cispo/ratio_*; enable_sample_support_replay"},
};

// Both run from git: @624b824a (0.3.1) and @31f1ca961 (0.1.0), which the
// answers are of. Their numbers date nothing, so any is taken for this one.
inline constexpr DatedRelease kSlimeReleases[] = {{{0, 0, 0}, ""}};
inline constexpr DatedRelease kMilesReleases[] = {{{0, 0, 0}, ""}};
// From git: @7ea279ab (0.6.0), likewise.
inline constexpr DatedRelease kNemoRlReleases[] = {{{0, 0, 0}, ""}};
// The wheel. Older ones have no gradient_accumulation_steps in the loss.
inline constexpr DatedRelease kMsSwiftReleases[] = {{{4, 6, 0}, ""}};
// From git: @559b4477 (0.8.0), @cbff54d6 (2.0.0) and @8eb27cc2.
inline constexpr DatedRelease kPrimeRlReleases[] = {{{0, 0, 0}, ""}};
inline constexpr DatedRelease kArealReleases[] = {{{0, 0, 0}, ""}};
inline constexpr DatedRelease kRollReleases[] = {{{0, 0, 0}, ""}};
// A service.
inline constexpr DatedRelease kTinkerReleases[] = {{{0, 0, 0}, ""}};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_RELEASES_H_
