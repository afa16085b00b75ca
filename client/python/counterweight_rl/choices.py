"""The choices that methods and requests are made of: the enums of proto/counterweight/v1.

Made by `make proto`. Edits here are lost.
"""

from __future__ import annotations

from enum import Enum


class Choice(str, Enum):
    """A choice that equals its lower-case name."""

    def __str__(self) -> str:
        return str(self.value)


class RatioSource(Choice):
    """The log-probs of the log ratio, numerator first."""

    OLD_ROLLOUT = "old_rollout"
    """old - rollout: engine mismatch and staleness (decoupled)."""
    CURRENT_ROLLOUT = "current_rollout"
    """current - rollout: the same and the update (bypass)."""
    CURRENT_OLD = "current_old"
    """current - old: the update (PPO)."""


class Level(Choice):
    """Tokens over which log ratios are aggregated."""

    TOKEN = "token"
    """Each token's own log ratio."""
    SEQUENCE = "sequence"
    """Sum over the sequence: product of ratios."""
    GEOMETRIC = "geometric"
    """Mean over the sequence: geometric mean of ratios."""
    PREFIX = "prefix"
    """Mean over the tokens up to and with this one."""
    TURN = "turn"
    """Mean over the token's turn: a run of tokens in response_mask. The tensors are in host memory.
    """


class Bound(Choice):
    """Treatment of weights outside the interval; equality keeps."""

    NONE = "none"
    """Nothing; no interval may be given."""
    TRUNCATE = "truncate"
    """The nearest end (TIS)."""
    MASK = "mask"
    """Weight 0; keep mask and denominators stay (IcePop, MIS)."""


class Estimator(Choice):
    """A token's contribution; l: log ratio. J. Schulman, "Approximating KL Divergence", 2020."""

    RATIO = "ratio"
    """l, the interval given as ratios."""
    K2 = "k2"
    """l^2 / 2."""
    K3 = "k3"
    """exp(l) - 1 - l."""
    BINARY_KL = "binary_kl"
    """p log(p / q) + (1 - p) log((1 - p) / (1 - q)), nats, where p and q are the probabilities
    exp(log_prob) of the ratio's denominator and numerator, each brought into [1e-6, 1 - 1e-6].
    Takes no token_clamp."""
    TOTAL_VARIATION = "total_variation"
    """|p - q| of the same, in [0, 1]. Takes no token_clamp."""
    DIFFERENCE = "difference"
    """q - p of the same, not brought into an interval, in [-1, 1]. Takes no token_clamp."""
    REVERSE_K3 = "reverse_k3"
    """exp(-l) - 1 + l. Takes no token_clamp."""


class Aggregation(Choice):
    """Combination of the tokens' contributions into a rule's statistic."""

    TOKEN = "token"
    """Each token by itself."""
    SUM = "sum"
    """Sum over the sequence."""
    MEAN = "mean"
    """Mean over the sequence."""
    MAX = "max"
    """Largest of the sequence, 0 for an empty one."""
    ALL = "all"
    """The sequence is kept if every token is inside."""
    PREFIX_MEAN = "prefix_mean"
    """Mean over the tokens up to and with this one."""
    TURN_MEAN = "turn_mean"
    """Mean over the token's turn, as LEVEL_TURN; after another rule with PARALLEL alone. A method
    has at most two different means over turns."""


class RuleEvaluation(Choice):
    """The mask that rules use."""

    PARALLEL = "parallel"
    """Every rule uses response_mask."""
    SEQUENTIAL = "sequential"
    """Each rule uses the mask that the earlier ones kept."""


class RuleCondition(Choice):
    """Tokens to which a rule applies."""

    ALWAYS = "always"
    """Everywhere."""
    NEGATIVE_ADVANTAGE = "negative_advantage"
    """Only at tokens with an advantage < 0 (OPSM); needs ADVANTAGES."""
    POSITIVE_ADVANTAGE = "positive_advantage"
    """Only at tokens with an advantage > 0; needs ADVANTAGES."""
    NON_POSITIVE_ADVANTAGE = "non_positive_advantage"
    """Only at tokens with an advantage <= 0; needs ADVANTAGES."""


class RuleEffect(Choice):
    """Effect of a rule on a token that it does not keep."""

    DROP = "drop"
    """keep_mask 0."""
    ZERO_WEIGHT = "zero_weight"
    """Weight 0; keep mask and denominators stay. Needs an importance weight."""


class Surrogate(Choice):
    """The pointwise policy objective. Formulas and papers: kernels/METHODS.md."""

    PPO_CLIP = "ppo_clip"
    """PPO clip, with dual_clip and ratio_cap."""
    GSPO = "gspo"
    """Sequence-level clip (GSPO)."""
    GSPO_TOKEN = "gspo_token"
    """GSPO with per-token advantages."""
    CISPO = "cispo"
    """Clipped and detached ratio times log-prob (CISPO)."""
    SAPO = "sapo"
    """Soft gate instead of a clip (SAPO)."""
    REINFORCE = "reinforce"
    """Log-prob times advantage."""
    GPG = "gpg"
    """Group policy gradient."""
    DRO = "dro"
    """Direct reward optimization."""
    DPPO_TV = "dppo_tv"
    """Divergence-bounded, total variation."""
    DPPO_KL = "dppo_kl"
    """Divergence-bounded, binary KL."""
    GEO_MEAN = "geo_mean"
    """Geometric mean of clipped ratios (GMPO)."""
    LUSPO = "luspo"
    """Length-unbiased sequence policy optimization."""
    VESPO = "vespo"
    """Variational sequence-level soft weighting."""
    ROLLOUT_IS = "rollout_is"
    """Ratio to the rollout policy, masked, detached."""
    KL_COV = "kl_cov"
    """PPO without clip and a penalty on high-covariance tokens."""
    CLIP_COV = "clip_cov"
    """PPO clip without high-covariance tokens."""
    CROSS_ENTROPY = "cross_entropy"
    """Negative log-prob."""
    IMPORTANCE_SAMPLING = "importance_sampling"
    """Ratio times advantage, unclipped."""


class LossAggregation(Choice):
    """Combination of token losses into one number; m is the keep mask."""

    TOKEN_MEAN = "token_mean"
    """Sum over tokens / number of tokens."""
    TOKEN_SUM = "token_sum"
    """Sum over tokens."""
    SEQ_MEAN_TOKEN_SUM = "seq_mean_token_sum"
    """Row sums, averaged over rows."""
    SEQ_MEAN_TOKEN_MEAN = "seq_mean_token_mean"
    """Row means, averaged over rows."""
    SEQ_MEAN_TOKEN_SUM_NORM = "seq_mean_token_sum_norm"
    """Row sums / norm_length, averaged over rows."""


class LossDenominator(Choice):
    """The count that a mean divides by."""

    ORIGINAL = "original"
    """Tokens (sequences) of response_mask; of the step, if CorrectRequest.global_counts has them.
    """
    KEPT = "kept"
    """Tokens (sequences) that the rules kept; likewise."""
    GLOBAL = "global"
    """As ORIGINAL, and CorrectRequest.global_counts is required."""


class KlEstimator(Choice):
    """Estimator of a KL penalty; l = current - ref."""

    K1 = "k1"
    """l."""
    K2 = "k2"
    """l^2 / 2."""
    K3 = "k3"
    """exp(-l) - 1 + l."""
    ABS = "abs"
    """|l|."""


class NonFinitePolicy(Choice):
    """Policy for non-finite numbers at positions that count."""

    REJECT = "reject"
    """INVALID_ARGUMENT that names tensor, sequence and token of the first one."""
    DROP = "drop"
    """The token is treated as if response_mask were 0; it is counted."""
    NEUTRALIZE = "neutralize"
    """The token's log ratio is 0 (ratio 1) in every source; it is counted. In a loss its advantage
    stays if it and the current log-prob are finite, else it is 0."""


class SelectionScope(Choice):
    """The tokens among which a loss selects some."""

    CALL = "call"
    """Those of one request: each selects its own share."""


class GroupEstimator(Choice):
    """The baseline of a row, which is subtracted from its reward r."""

    GRPO = "grpo"
    """The mean over the voters of its group; divided by `std`, by default GROUP."""
    DR_GRPO = "dr_grpo"
    """The same; `std` is NONE by default."""
    RLOO = "rloo"
    """The mean over the other voters of its group; `std` is NONE by default."""
    REINFORCE_PP_BASELINE = "reinforce_pp_baseline"
    """As DR_GRPO; `whitening` is SAMPLE by default."""


class GroupVoters(Choice):
    """Rows with rewards that make means and deviations; NaN makes none."""

    ALL = "all"
    """All rows, rejected ones too, as other systems have it."""
    KEPT_ROWS = "kept_rows"
    """Rows with kept_tokens > 0."""
    FULLY_KEPT_ROWS = "fully_kept_rows"
    """Rows with tokens, all of them kept."""


class LonelyGroup(Choice):
    """Advantages of a group with less than `fewest_voters` voters."""

    ZERO = "zero"
    """0."""
    RAW = "raw"
    """The reward, as with a mean of 0 and a standard deviation of 1."""


class RewardStd(Choice):
    """Standard deviation that divides, of n voters with n - 1 below the sum."""

    NONE = "none"
    """Nothing."""
    GROUP = "group"
    """That of the group's voters."""
    BATCH = "batch"
    """That of all voters."""
    OTHERS = "others"
    """That of the group's other voters, 0 of one."""


class Whitening(Choice):
    """Makes (a - mean) / s of all advantages a, one for each kept token, n in all."""

    NONE = "none"
    """Nothing."""
    SAMPLE = "sample"
    """s = sqrt(variance + 1e-8), with n - 1 below the sum: verl, slime."""
    POPULATION = "population"
    """s = sqrt(max(variance, 1e-8)), with n: OpenRLHF, NeMo-RL."""
