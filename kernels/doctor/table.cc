// The one place where a finding's name, severity and words are written.
#include "kernels/doctor/finding.h"

namespace counterweight::kernels::doctor {
namespace {

constexpr Severity kError = Severity::kError;
constexpr Severity kWarning = Severity::kWarning;
constexpr Severity kNote = Severity::kNote;

constexpr Description kTable[] = {
    {Name::kNonFinite, "non_finite", kError,
     "NaN or infinities where the mask is 1",
     "{tokens} tokens of the mask hold NaN or an infinity",
     "find the step that makes them; non_finite_policy only leaves them out"},
    {Name::kNoTokens, "no_tokens", kError, "no token has mask 1",
     "response_mask is 0 everywhere, so there is nothing to train on",
     "check how the mask is made"},
    {Name::kShifted, "shifted", kError,
     "log-probs of one side lie one token early or late",
     "{stream} lies one token {detail}: {observed} nats a token as sent, "
     "{repaired} with the shift undone",
     "labels are shifted twice or not at all; the log-prob of token t belongs "
     "to the logits of position t - 1"},
    {Name::kCountOffByOne, "count_off_by_one", kError,
     "packed rows of one side have one token more or fewer, so rows slide",
     "{stream} has one token {detail} per row, so later rows slide: {observed} "
     "nats a token as sent, {repaired} with the slide undone",
     "cut both sides to the same tokens of each sequence before packing"},
    {Name::kLog10, "log10", kError, "logarithms to base 10",
     "{stream} is in logarithms to base 10: {observed} nats a token as sent, "
     "{repaired} after multiplication by ln 10",
     "multiply it by 2.302585"},
    {Name::kLog2, "log2", kError, "logarithms to base 2",
     "{stream} is in logarithms to base 2: {observed} nats a token as sent, "
     "{repaired} after multiplication by ln 2",
     "multiply it by 0.693147"},
    {Name::kProbabilities, "probabilities", kError,
     "probabilities in place of log-probs",
     "{stream} holds probabilities: no value is below 0, the largest is "
     "{largest}",
     "send their natural logarithm"},
    {Name::kWrongSign, "wrong_sign", kError, "negated log-probs, or losses",
     "{stream} has no value below 0: these are negative log-probs or losses",
     "negate it"},
    {Name::kCumulative, "cumulative", kError,
     "running sums in place of single log-probs",
     "{stream} holds running sums over the row: {observed} nats a token as "
     "sent, {repaired} of the differences of neighbours",
     "send each token's own log-prob"},
    {Name::kRowConstant, "row_constant", kError,
     "one number for all tokens of a row",
     "{stream} repeats one number in each row: {share} of neighbours are equal",
     "send a log-prob for each token, not the sequence's sum or mean"},
    {Name::kRepeatedValues, "repeated_values", kError,
     "every second value repeats the one before it",
     "{stream} repeats every second value: {share} of them equal their left "
     "neighbour",
     "look for an interleave or an upsampling along the wrong axis"},
    {Name::kSentinel, "sentinel", kError,
     "a filler in place of a missing log-prob",
     "{stream} is exactly {value} at {share} of the tokens, and the other side "
     "is far from it at {tokens}",
     "the engine returned no log-prob there; set response_mask to 0 or ask the "
     "engine for it"},
    {Name::kPositiveLogProbs, "positive_log_probs", kError,
     "single log-probs above 0",
     "{stream} is above 0 at {tokens} tokens, up to {largest}",
     "a log-prob is at most 0; logits or values of another tensor are among "
     "them"},
    {Name::kMaskCoversPrompt, "mask_covers_prompt", kError,
     "the mask begins inside the prompt",
     "response_mask covers prompt tokens: {tokens} zeros of {stream} at the "
     "beginning of {rows} rows",
     "begin the mask at the first sampled token"},
    {Name::kMaskEarly, "mask_early", kError, "the mask lies one token early",
     "response_mask lies early: {rows} rows begin with a token that was not "
     "sampled, and {outside} sampled tokens are outside the mask",
     "shift the mask by one, as the log-probs are"},
    {Name::kMaskLate, "mask_late", kError, "the mask lies one token late",
     "response_mask lies late: {rows} rows end with a token that was not "
     "sampled, and {outside} sampled tokens are outside the mask",
     "shift the mask by one, as the log-probs are"},
    {Name::kMaskCoversPadding, "mask_covers_padding", kError,
     "the mask goes on into the padding",
     "response_mask covers padding: {tokens} zeros of {stream} at the end of "
     "{rows} rows",
     "end the mask at the last sampled token"},
    {Name::kLastTokenMissing, "last_token_missing", kError,
     "one side has no number for the last token of the rows",
     "{stream} is 0 at the last token of {rows} rows, and elsewhere it is not",
     "the one side has n tokens and the other n + 1; keep the end-of-sequence "
     "token on both sides or on none"},
    {Name::kTailRetokenised, "tail_retokenised", kError,
     "rows agree up to a token, and no more after it",
     "{rows} rows lose the thread: up to a token both sides agree, from there "
     "on they are {after} nats a token apart",
     "train on the token ids that were sampled, not on their text encoded "
     "again"},
    {Name::kRowsPermuted, "rows_permuted", kError,
     "rows of one side belong to other rows of the other side",
     "rows are permuted between the two sides: {rows} rows fit another row, "
     "row "
     "{sequence} fits row {other}",
     "sort both sides by the same sequence id before they are sent"},
    {Name::kUnmatched, "unmatched", kError,
     "the two sides are not of the same tokens",
     "the two sides do not belong to the same tokens: their logits correlate "
     "with {correlation}, healthy batches with 0.83 or more",
     "compare token ids and order of rows on both sides"},
    {Name::kDuplicatedRows, "duplicated_rows", kWarning,
     "rows occur twice that are too improbable to repeat",
     "{rows} rows are copies of others, and too improbable to be sampled twice",
     "look for a batch that is filled up by repetition, or a retry that counts "
     "twice"},
    {Name::kTemperature, "temperature", kError,
     "the two sides differ by a temperature",
     "{stream} is the rollout's at the temperature {temperature} ({low} to "
     "{high}); {detail}",
     "report log-probs of the distribution that sampled (vLLM: "
     "logprobs_mode=processed_logprobs), and divide the trainer's logits by "
     "the same temperature"},
    {Name::kTruncatedSupport, "truncated_support", kWarning,
     "one side is normalized over top-k or top-p alone",
     "{stream} is of a truncated distribution, whose tokens have {kept_mass} "
     "of "
     "the other side's mass",
     "sample with top_p = 1 and without top_k, or renormalize the trainer's "
     "log-probs over the same tokens"},
    {Name::kSwapped, "swapped", kError, "the two sides are exchanged",
     "rollout and trainer seem exchanged: the mean ratio of trainer to rollout "
     "is {mean_ratio}, and the inverse one {mean_inverse_ratio}; if the "
     "rollout's side had sampled, the first would be 1",
     "exchange the two tensors"},
    {Name::kStaleCurrent, "stale_current", kError,
     "current log-probs are of the rollout's weights, not of the trainer's",
     "current_log_probs lies nearer to rollout_log_probs than to "
     "old_log_probs: the trainer's weights of this step did not compute it",
     "compute current_log_probs with the weights being trained"},
    {Name::kRolloutNotSampling, "rollout_not_sampling", kWarning,
     "rollout log-probs are not of the distribution that sampled",
     "the mean of {detail} is {mean_ratio} where it must be 1: "
     "rollout_log_probs is not of the distribution that sampled",
     "ask the engine for the log-probs after temperature, top-p, top-k and "
     "penalties"},
    {Name::kOldEqualsRollout, "old_equals_rollout", kWarning,
     "old log-probs are a copy of the rollout's",
     "old_log_probs equals rollout_log_probs bit for bit at {share} of the "
     "tokens",
     "with an engine of its own the two differ; send the trainer's own "
     "recomputation, or use a bypass method"},
    {Name::kCurrentEqualsRollout, "current_equals_rollout", kWarning,
     "current log-probs are a copy of the rollout's",
     "current_log_probs equals rollout_log_probs bit for bit at {share} of the "
     "tokens",
     "compute current_log_probs with the weights being trained"},
    {Name::kCurrentEqualsOld, "current_equals_old", kNote,
     "current log-probs are a copy of the old ones",
     "current_log_probs equals old_log_probs bit for bit at {share} of the "
     "tokens",
     "right before the step's first update, and wrong after it"},
    {Name::kBf16Rounded, "bf16_rounded", kNote,
     "float32 numbers that were bfloat16",
     "{stream} is float32 of bfloat16 precision, which moves a log-prob of -1 "
     "by up to 0.004",
     "take the log-softmax in float32"},
    {Name::kFp16Rounded, "fp16_rounded", kNote,
     "float32 numbers that were float16",
     "{stream} is float32 of float16 precision, which moves a log-prob of -1 "
     "by up to 0.0005",
     "take the log-softmax in float32"},
    {Name::kAdvantagesEqual, "advantages_equal", kWarning,
     "all advantages are one number other than 0",
     "all {rows} rows have the advantage {value}",
     "rewards or a baseline are missing"},
    {Name::kAdvantagesOneSign, "advantages_one_sign", kWarning,
     "all advantages have one sign",
     "the advantages of all {rows} rows have one sign",
     "rewards are sent in place of advantages, or the baseline is missing"},
    {Name::kAdvantagesNotCentred, "advantages_not_centred", kWarning,
     "advantages do not add up to 0 within groups",
     "the advantages of {groups} groups of rows do not add up to 0",
     "subtract the mean of each group, over all its rows"},
    {Name::kAdvantagesZero, "advantages_zero", kNote, "all advantages are 0",
     "all advantages are 0, so the policy loss has no gradient",
     "all answers got one reward; an alarm if a whole step has it"},
};
static_assert(sizeof(kTable) / sizeof(kTable[0]) == kNumNames);

constexpr bool IsInOrder() {
  for (int i = 0; i < kNumNames; ++i) {
    if (kTable[i].name != static_cast<Name>(i)) return false;
  }
  return true;
}
static_assert(IsInOrder());

}  // namespace

const Description& Describe(Name name) {
  return kTable[static_cast<int>(name)];
}

const char* NameOf(Stream stream) {
  switch (stream) {
    case Stream::kNone:
      return "";
    case Stream::kRollout:
      return "rollout_log_probs";
    case Stream::kOld:
      return "old_log_probs";
    case Stream::kCurrent:
      return "current_log_probs";
    case Stream::kMask:
      return "response_mask";
    case Stream::kAdvantages:
      return "advantages";
  }
  return "";
}

const char* NameOf(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "";
}

}  // namespace counterweight::kernels::doctor
