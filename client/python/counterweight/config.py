"""Methods: a preset's name, every choice spelled out, or another system's own block.

The dataclasses mirror the messages of proto/counterweight/v1/method.proto field by field; None
means "absent", and what absence means stands beside each field. Ratios are plain numbers, log
ratios and the estimators K2 and K3 are in nats. Intervals are inclusive at both ends. The server
checks values, and its InvalidRequestError names every wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias


class _Choice(str, Enum):
    """A choice that equals its lower-case name."""

    def __str__(self) -> str:
        return str(self.value)


class RatioSource(_Choice):
    """Which log-probs make the log ratio, numerator first."""

    OLD_ROLLOUT = "old_rollout"
    """old - rollout: engine mismatch and staleness (decoupled)."""
    CURRENT_ROLLOUT = "current_rollout"
    """current - rollout: the same and the update (bypass)."""
    CURRENT_OLD = "current_old"
    """current - old: the update (PPO)."""


class Level(_Choice):
    """Over which tokens log ratios are aggregated."""

    TOKEN = "token"
    """Each token's own."""
    SEQUENCE = "sequence"
    """Sum over the sequence: product of ratios."""
    GEOMETRIC = "geometric"
    """Mean over the sequence: geometric mean of ratios."""
    PREFIX = "prefix"
    """Mean over the tokens up to and with this one."""


class Bound(_Choice):
    """What happens to a weight outside the interval; equality keeps."""

    NONE = "none"
    """Nothing; no interval may be given."""
    TRUNCATE = "truncate"
    """The nearest end (TIS)."""
    MASK = "mask"
    """Weight 0; keep mask and denominators stay (IcePop, MIS)."""


class Estimator(_Choice):
    """A token's contribution to a statistic; l the log ratio."""

    RATIO = "ratio"
    """l, the interval given as ratios."""
    K2 = "k2"
    """l^2 / 2, nats."""
    K3 = "k3"
    """exp(l) - 1 - l, nats."""


class Aggregation(_Choice):
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


class RuleEvaluation(_Choice):
    """Which mask the rules see."""

    PARALLEL = "parallel"
    """Every rule sees response_mask."""
    SEQUENTIAL = "sequential"
    """Each rule sees what the earlier ones left."""


class RuleCondition(_Choice):
    """Where a rule applies."""

    ALWAYS = "always"
    """Everywhere."""
    NEGATIVE_ADVANTAGE = "negative_advantage"
    """Only at tokens whose advantage is < 0 (OPSM); needs advantages."""


class RuleEffect(_Choice):
    """What a rule does to a token that it does not keep."""

    DROP = "drop"
    """keep_mask 0."""
    ZERO_WEIGHT = "zero_weight"
    """Weight 0; keep mask and denominators stay. Needs an importance weight."""


class Surrogate(_Choice):
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


class LossAggregation(_Choice):
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


class LossDenominator(_Choice):
    """Which count a mean divides by."""

    ORIGINAL = "original"
    """Tokens (sequences) of response_mask."""
    KEPT = "kept"
    """Tokens (sequences) that the rules kept."""
    GLOBAL = "global"
    """Counts over all ranks, given by the caller."""


class KlEstimator(_Choice):
    """Estimator of a KL penalty; l = current - ref."""

    K1 = "k1"
    """l."""
    K2 = "k2"
    """l^2 / 2."""
    K3 = "k3"
    """exp(-l) - 1 + l."""
    ABS = "abs"
    """|l|."""


class NonFinitePolicy(_Choice):
    """What to do about a non-finite log-prob, log ratio or advantage where response_mask is 1."""

    REJECT = "reject"
    """InvalidRequestError naming tensor, sequence and token of the first one."""
    DROP = "drop"
    """The token is treated as if response_mask were 0; it is counted."""
    NEUTRALIZE = "neutralize"
    """The token's log ratio is 0 (ratio 1); it is counted."""


@dataclass(frozen=True, kw_only=True)
class ImportanceWeight:
    """w = bound(exp(clamp(level(clamp(l_t))))), l_t the token's log ratio.

    Attributes:
        ratio_source: Numerator and denominator of the ratio.
        level: Over which tokens log ratios are aggregated.
        bound: What happens outside [lower, upper].
        token_clamp: Each token's log ratio is clamped to [-token_clamp, token_clamp] before
            aggregation; nats, > 0. None: not clamped.
        aggregate_clamp: The aggregated log ratio is clamped likewise; nats, > 0. None: not clamped.
        lower: Lower end of the interval, a ratio >= 0. None: none.
        upper: Upper end, a ratio > 0 and >= lower. None: none. TRUNCATE and MASK need one end.
        normalize: Divide bounded weights by their mean over the batch.
        after_rule: The aggregate sees the mask that the first after_rule rules left. None: 0, the
            original mask.
    """

    ratio_source: RatioSource
    level: Level
    bound: Bound
    token_clamp: float | None = None
    aggregate_clamp: float | None = None
    lower: float | None = None
    upper: float | None = None
    normalize: bool = False
    after_rule: int | None = None


@dataclass(frozen=True, kw_only=True)
class RejectionRule:
    """keep = lower <= aggregation(estimator(clamp(l_t))) <= upper, where the condition holds.

    Attributes:
        ratio_source: Numerator and denominator of the ratio.
        estimator: A token's contribution.
        aggregation: How contributions become the statistic.
        lower: Lower end of the keep interval. RATIO: a ratio >= 0, compared in logs; K2 and K3:
            nats. None: none.
        upper: Upper end, >= lower. None: none. At least one end is required.
        token_clamp: As in ImportanceWeight.
        aggregate_clamp: As in ImportanceWeight, on the aggregated statistic; RATIO only.
        condition: Where the rule applies. None: ALWAYS.
        effect: What it does. None: DROP.
        name: Name in metrics and summaries, [a-z0-9_]{1,64}. Empty: aggregation and estimator, as
            in "mean_k3".
    """

    ratio_source: RatioSource
    estimator: Estimator
    aggregation: Aggregation
    lower: float | None = None
    upper: float | None = None
    token_clamp: float | None = None
    aggregate_clamp: float | None = None
    condition: RuleCondition | None = None
    effect: RuleEffect | None = None
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class PolicyLoss:
    """The policy loss and, when the gradient is asked for, d loss / d current_log_probs.

    Attributes:
        surrogate: The pointwise objective.
        aggregation: How token losses become one number.
        denominator: What sums are divided by.
        ratio_source: Ratio of the surrogate. None: CURRENT_OLD, or CURRENT_ROLLOUT when there are
            no old log-probs.
        clip_low: 1 - clip_low bounds the ratio from below; >= 0.
        clip_high: 1 + clip_high bounds the ratio from above; >= 0.
        dual_clip: The loss is at most -A * dual_clip where the advantage A < 0; > 1. None: none.
        ratio_cap: The unclipped ratio is at most this; > 0. None: none.
        log_ratio_clamp: Clamp of the policy log ratio before exp; nats, > 0. None: none.
        tau_positive: SAPO temperature for A > 0; > 0.
        tau_negative: SAPO temperature for A <= 0; > 0.
        k_positive: VESPO shape for A >= 0.
        lambda_positive: VESPO shape for A >= 0.
        k_negative: VESPO shape for A < 0.
        lambda_negative: VESPO shape for A < 0.
        beta: DRO: weight of the quadratic term, > 0.
        covariance_fraction: KL_COV and CLIP_COV: share of tokens selected, in (0, 1].
        covariance_lower: CLIP_COV: candidates have a covariance above this.
        covariance_upper: CLIP_COV: and below this.
        covariance_kl_weight: KL_COV: weight of |log ratio| on the selected tokens, >= 0.
        norm_length: SEQ_MEAN_TOKEN_SUM_NORM: divisor of each row's sum, > 0. None: the padded
            width.
        allow_double_correction: Apply the importance weight although the surrogate's own ratio
            already corrects the same drift.
    """

    surrogate: Surrogate
    aggregation: LossAggregation
    denominator: LossDenominator
    ratio_source: RatioSource | None = None
    clip_low: float | None = None
    clip_high: float | None = None
    dual_clip: float | None = None
    ratio_cap: float | None = None
    log_ratio_clamp: float | None = None
    tau_positive: float | None = None
    tau_negative: float | None = None
    k_positive: float | None = None
    lambda_positive: float | None = None
    k_negative: float | None = None
    lambda_negative: float | None = None
    beta: float | None = None
    covariance_fraction: float | None = None
    covariance_lower: float | None = None
    covariance_upper: float | None = None
    covariance_kl_weight: float | None = None
    norm_length: float | None = None
    allow_double_correction: bool = False


@dataclass(frozen=True, kw_only=True)
class KlPenalty:
    """coefficient * aggregate(k(l)), l = current - ref; part of the policy loss.

    Attributes:
        estimator: The function k.
        coefficient: >= 0.
        token_clamp: Clamp of l before the formula; nats, > 0. None: none.
        value_clamp: Clamp of the value after the formula; nats, > 0. None: none.
        straight_through: The value of the estimator with the gradient of K2.
        importance_weighted: Multiply by the policy ratio, gradient through it included.
    """

    estimator: KlEstimator
    coefficient: float
    token_clamp: float | None = None
    value_clamp: float | None = None
    straight_through: bool = False
    importance_weighted: bool = False


@dataclass(frozen=True, kw_only=True)
class CorrectionConfig:
    """A method spelled out. Everything absent: no weights, no rules, no loss, only drift metrics.

    Attributes:
        importance_weight: The importance weight. None: none.
        rules: Rejection rules, all of which must keep a token.
        rule_evaluation: Which mask a rule sees. None: PARALLEL.
        drift_source: The ratio whose drift the metrics describe. None: OLD_ROLLOUT if both are
            there, else CURRENT_ROLLOUT, else CURRENT_OLD.
        policy_loss: The policy loss. None: none.
        kl_penalty: A KL penalty inside the loss. None: none.
    """

    importance_weight: ImportanceWeight | None = None
    rules: Sequence[RejectionRule] = ()
    rule_evaluation: RuleEvaluation | None = None
    drift_source: RatioSource | None = None
    policy_loss: PolicyLoss | None = None
    kl_penalty: KlPenalty | None = None


@dataclass(frozen=True, init=False)
class Preset:
    """A named method with, where wanted, other numbers than its defaults.

    ``Preset("token_tis", upper=3.0)``; names, units, ranges and defaults: ``Client.list_methods``.

    Attributes:
        name: A name of the methods table.
        parameters: Values of the method's parameters; absent ones take their default.
    """

    name: str
    parameters: Mapping[str, float]

    def __init__(self, name: str, /, **parameters: float) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "parameters", parameters)


@dataclass(frozen=True)
class Dialect:
    """Another system's own configuration, as it stands in that user's YAML.

    ``Dialect("verl", {"rollout_is": "token", "rollout_is_threshold": 2.0})``

    Attributes:
        system: "verl"; see ``ServerInfo.dialects``.
        block: The block: mappings (OmegaConf's too), lists, strings, numbers, booleans, None.
        ignore_unknown_fields: False: an unknown key is an InvalidRequestError naming it and the
            nearest known one. True: unknown keys are ignored, and listed in ``Result.warnings``.
    """

    system: str
    block: Mapping[str, Any] = field(default_factory=dict)
    ignore_unknown_fields: bool = False


Method: TypeAlias = str | Preset | CorrectionConfig | Dialect
"""What ``method=`` takes; a string is the name of a preset."""
