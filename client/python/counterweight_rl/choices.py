"""The choices that methods and requests are made of: the enums of proto/counterweight/v1."""

from __future__ import annotations

from enum import Enum


class Choice(str, Enum):
    """A choice that equals its lower-case name."""

    def __str__(self) -> str:
        return str(self.value)


class RatioSource(Choice):
    """Which log-probs make the log ratio, numerator first."""

    OLD_ROLLOUT = "old_rollout"
    """old - rollout: engine mismatch and staleness (decoupled)."""
    CURRENT_ROLLOUT = "current_rollout"
    """current - rollout: the same and the update (bypass)."""
    CURRENT_OLD = "current_old"
    """current - old: the update (PPO)."""


class Level(Choice):
    """Over which tokens log ratios are aggregated."""

    TOKEN = "token"
    """Each token's own."""
    SEQUENCE = "sequence"
    """Sum over the sequence: product of ratios."""
    GEOMETRIC = "geometric"
    """Mean over the sequence: geometric mean of ratios."""
    PREFIX = "prefix"
    """Mean over the tokens up to and with this one."""


class Bound(Choice):
    """What happens to a weight outside the interval; equality keeps."""

    NONE = "none"
    """Nothing; no interval may be given."""
    TRUNCATE = "truncate"
    """The nearest end (TIS)."""
    MASK = "mask"
    """Weight 0; keep mask and denominators stay (IcePop, MIS)."""


class Estimator(Choice):
    """A token's contribution to a statistic; l the log ratio."""

    RATIO = "ratio"
    """l, the interval given as ratios."""
    K2 = "k2"
    """l^2 / 2, nats."""
    K3 = "k3"
    """exp(l) - 1 - l, nats."""
    BINARY_KL = "binary_kl"
    """p log(p / q) + (1 - p) log((1 - p) / (1 - q)), nats, of the probabilities p and q of the
    ratio's denominator and numerator, each brought into [1e-6, 1 - 1e-6]."""
    TOTAL_VARIATION = "total_variation"
    """abs(p - q) of the same."""


class Aggregation(Choice):
    """How a rule's statistic is made of its tokens' contributions."""

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


class RuleEvaluation(Choice):
    """Which mask the rules see."""

    PARALLEL = "parallel"
    """Every rule sees response_mask."""
    SEQUENTIAL = "sequential"
    """Each rule sees what the earlier ones left."""


class RuleCondition(Choice):
    """Where a rule applies."""

    ALWAYS = "always"
    """Everywhere."""
    NEGATIVE_ADVANTAGE = "negative_advantage"
    """Only at tokens whose advantage is < 0 (OPSM); needs advantages."""


class RuleEffect(Choice):
    """What a rule does to a token that it does not keep."""

    DROP = "drop"
    """keep_mask 0."""
    ZERO_WEIGHT = "zero_weight"
    """Weight 0; keep mask and denominators stay. Needs an importance weight."""


class Surrogate(Choice):
    """The pointwise policy objective; formulas and papers: kernels/README.md."""

    PPO_CLIP = "ppo_clip"
    GSPO = "gspo"
    GSPO_TOKEN = "gspo_token"
    CISPO = "cispo"
    SAPO = "sapo"
    REINFORCE = "reinforce"
    GPG = "gpg"
    DRO = "dro"
    DPPO_TV = "dppo_tv"
    DPPO_KL = "dppo_kl"
    GEO_MEAN = "geo_mean"
    LUSPO = "luspo"
    VESPO = "vespo"
    ROLLOUT_IS = "rollout_is"
    KL_COV = "kl_cov"
    CLIP_COV = "clip_cov"
    CROSS_ENTROPY = "cross_entropy"
    IMPORTANCE_SAMPLING = "importance_sampling"


class LossAggregation(Choice):
    """How token losses become one number."""

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
    """Which count a mean divides by."""

    ORIGINAL = "original"
    """Tokens (sequences) of response_mask."""
    KEPT = "kept"
    """Tokens (sequences) that the rules kept."""
    GLOBAL = "global"
    """Counts over all ranks, given by the caller."""


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
    """What to do about a non-finite log-prob, log ratio or advantage where response_mask is 1."""

    REJECT = "reject"
    """InvalidRequestError naming tensor, sequence and token of the first one."""
    DROP = "drop"
    """The token is treated as if response_mask were 0; it is counted."""
    NEUTRALIZE = "neutralize"
    """The token's log ratio is 0 (ratio 1); it is counted."""
