"""Methods: a preset's name, every choice spelled out, or another system's own block.

The dataclasses mirror the messages of proto/counterweight/v1 field by field; None means "absent",
and each field says what absence means. Ratios are plain numbers; log ratios and the estimators K2
and K3 are in nats. Intervals are inclusive at both ends. The server checks values; its
InvalidRequestError names every wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from counterweight_rl import presets
from counterweight_rl.choices import (
    Aggregation,
    Bound,
    Estimator,
    KlEstimator,
    Level,
    LossAggregation,
    LossDenominator,
    RatioSource,
    RuleCondition,
    RuleEffect,
    RuleEvaluation,
    SelectionScope,
    Surrogate,
)
from counterweight_rl.errors import Violation, refuse
from counterweight_rl.suggestions import did_you_mean


@dataclass(frozen=True, kw_only=True)
class ImportanceWeight:
    """w = bound(exp(clamp(level(clamp(l_t))))), where l_t is the token's log ratio.

    Attributes:
        ratio_source: Numerator and denominator of the ratio.
        level: Tokens over which log ratios are aggregated.
        bound: Treatment of weights outside [lower, upper].
        token_clamp: Each token's log ratio is clamped to [-token_clamp, token_clamp] before
            aggregation; nats, > 0. None: not clamped.
        aggregate_clamp: The aggregated log ratio is clamped likewise; nats, > 0. None: not clamped.
        lower: Lower end of the interval, a ratio >= 0. None: none.
        upper: Upper end, a ratio > 0 and >= lower. None: none. TRUNCATE and MASK need one end.
            ``"calm:0.999:2"``: as in Preset.
        normalize: Divide bounded weights by their mean over the batch.
        after_rule: The aggregate uses the mask that the first after_rule rules kept. None: 0, the
            original mask.
        upper_calm_quantile: The quantile in ``upper="calm:0.999:2"``, beside ``upper=2.0``.
    """

    ratio_source: RatioSource
    level: Level
    bound: Bound
    token_clamp: float | None = None
    aggregate_clamp: float | None = None
    lower: float | None = None
    upper: float | str | None = None
    normalize: bool = False
    after_rule: int | None = None
    upper_calm_quantile: float | None = None


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
        condition: Tokens to which the rule applies. None: ALWAYS.
        effect: Effect on tokens that it does not keep. None: DROP.
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
    """The policy loss and, if the gradient is requested, d loss / d current_log_probs.

    Attributes:
        surrogate: The pointwise objective.
        aggregation: How token losses become one number.
        denominator: Divisor of sums.
        ratio_source: Ratio of the surrogate. None: CURRENT_OLD, or CURRENT_ROLLOUT when there are
            no old log-probs.
        clip_low: 1 - clip_low bounds the ratio from below; >= 0. Surrogates that clip need both.
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
        covariance_lower: CLIP_COV: lower bound of the candidates' covariance, exclusive.
        covariance_upper: CLIP_COV: upper bound of the candidates' covariance, exclusive.
        covariance_kl_weight: KL_COV: weight of |log ratio| on the selected tokens, >= 0.
        norm_length: SEQ_MEAN_TOKEN_SUM_NORM: divisor of each row's sum, > 0. None: the padded
            width.
        allow_double_correction: Apply the importance weight although the surrogate's own ratio
            already corrects the same drift.
        average_advantages: Replace each advantage by the mean over the kept tokens of its sequence.
            For GSPO, GSPO_TOKEN and LUSPO.
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
    average_advantages: bool = False


@dataclass(frozen=True, kw_only=True)
class KlPenalty:
    """A penalty coefficient * aggregate(k(l)), l = current - ref, inside the policy loss.

    Attributes:
        estimator: The function k.
        coefficient: >= 0.
        token_clamp: Clamp of l before the formula; nats, > 0. None: none.
        value_clamp: Clamp of the value after the formula, gradient 0 outside; nats, > 0. None:
            none.
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
class SequenceFilter:
    """Drops sequences before weights, rules and loss.

    A sequence counts as masked in every number of the answer if the mean of exp(|l|) over its
    tokens of response_mask is above ``upper``; l is a token's log ratio. The metrics
    ``sequence_filter_mean``, ``_max`` and ``_dropped_fraction`` describe the filter itself. Tokens
    with a number that is not finite have no part in the mean. Its tensors and the mask are in host
    memory. NeMo-RL's seq_logprob_error_threshold.

    Attributes:
        ratio_source: Numerator and denominator of l.
        upper: The largest mean that keeps a sequence, >= 1, which is that of equal log-probs.
    """

    ratio_source: RatioSource
    upper: float


@dataclass(frozen=True, kw_only=True)
class CorrectionConfig:
    """A method spelled out. Without any field: no weights, no rules, no loss, only drift metrics.

    Attributes:
        importance_weight: The importance weight. None: none.
        rules: Rejection rules; every one must keep a token.
        rule_evaluation: The mask that a rule uses. None: PARALLEL.
        drift_source: The ratio of the drift metrics. None: OLD_ROLLOUT if both are
            present, else CURRENT_ROLLOUT, else CURRENT_OLD.
        policy_loss: The policy loss. None: none.
        kl_penalty: A KL penalty inside the loss. None: none.
        sequence_filter: Drops sequences before all of these. None: none.
    """

    importance_weight: ImportanceWeight | None = None
    rules: Sequence[RejectionRule] = ()
    rule_evaluation: RuleEvaluation | None = None
    drift_source: RatioSource | None = None
    policy_loss: PolicyLoss | None = None
    kl_penalty: KlPenalty | None = None
    sequence_filter: SequenceFilter | None = None


def _check_names(preset: Any, parameters: Iterable[str]) -> None:
    if not isinstance(preset, str):
        return  # which the call refuses
    known = presets.PARAMETERS.get(preset)
    if known is None:
        near = did_you_mean(preset, presets.PARAMETERS)
        raise refuse([Violation("method", f"no preset is called {preset!r}{near}")])
    takes = f"it takes {', '.join(known)}" if known else "it takes none"
    wrong = [
        Violation(
            f"method.parameters[{name}]",
            f"{preset} has no such parameter; {takes}{did_you_mean(name, known)}",
        )
        for name in parameters
        if name not in known
    ]
    if wrong:
        raise refuse(wrong)


@dataclass(frozen=True, init=False)
class Preset:
    """A named method, optionally with other parameters than its defaults and with a loss.

    ``Preset("token_tis", upper=3.0)``; names, units, ranges and defaults: ``Client.list_methods``.
    ``upper="calm:0.999:2"``, for a batch with ``run`` and ``step`` and a server: the quantile 0.999
    of the run's own unbounded weights, rounded up by a quarter octave of their logarithm at most.
    The first steps with it make the run's calm level, eight or more, and are bounded by 2;
    without ``:2`` they are an InvalidRequestError. All later ones have the same bound, which
    ``Result.resolved_bounds`` has. A server keeps it in memory, and each has its own.
    An unknown name, of the method or of a parameter, is an InvalidRequestError here already.

    Attributes:
        name: A name of the methods table.
        parameters: Values of the method's parameters, as given; absent ones have their default.
        policy_loss: A loss to compute with the method's weights and rules. None: the method's own,
            if it has one.
        kl_penalty: A KL penalty inside the loss. None: none.
    """

    name: str
    parameters: Mapping[str, float | str]
    policy_loss: PolicyLoss | None
    kl_penalty: KlPenalty | None

    def __init__(
        self,
        name: str,
        /,
        *,
        policy_loss: PolicyLoss | None = None,
        kl_penalty: KlPenalty | None = None,
        allow_unknown: bool = False,
        **parameters: float | str,
    ) -> None:
        """Checks the names.

        Args:
            name: A name of the methods table.
            policy_loss: A loss to compute with the method's weights and rules. None: the method's
                own, if it has one.
            kl_penalty: A KL penalty inside the loss. None: none.
            allow_unknown: Also take names that only a newer server knows.
            parameters: Values of the method's parameters; absent ones have their default.

        Raises:
            InvalidRequestError: An unknown name, with the nearest known one.
        """
        if not allow_unknown:
            _check_names(name, parameters)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "parameters", parameters)
        object.__setattr__(self, "policy_loss", policy_loss)
        object.__setattr__(self, "kl_penalty", kl_penalty)


@dataclass(frozen=True)
class Dialect:
    """Another system's own configuration, as in its user's YAML.

    ``Dialect("verl", {"rollout_is": "token", "rollout_is_threshold": 2.0})``

    Attributes:
        system: "verl", "trl", "skyrl", "openrlhf", "slime", "miles", "nemo_rl", "ms_swift",
            "prime_rl", "areal", "roll" or "tinker"; see ``ServerInfo.dialects``.
        block: A mapping of lists, strings, numbers, booleans, None and mappings (OmegaConf's too),
            which is sent and checked as a whole; or the system's configuration object (a
            GRPOConfig, a dataclass, a pydantic model, a structured OmegaConf node); only
            the dialect's fields are read and sent.
        ignore_unknown_fields: False: an unknown key is an InvalidRequestError that names it and the
            nearest known key. True: unknown keys are ignored and listed in ``Result.warnings``.
        release: The release of the system to reproduce, as its ``__version__`` has it: "0.9.1".
            ``ServerInfo.dialect_releases`` lists the releases at which answers changed. Empty: the
            newest that the server knows; ``Result.warnings`` name the differences of an older one.
    """

    system: str
    block: Any = field(default_factory=dict)
    ignore_unknown_fields: bool = False
    release: str = ""


Method: TypeAlias = str | Preset | CorrectionConfig | Dialect
"""Type of ``method=``; a string is the name of a preset."""


@dataclass(frozen=True, kw_only=True)
class GlobalCounts:
    """Sums over all ranks that share one optimizer step.

    A loss divides by them instead of the batch's own counts, so that the ranks' losses and
    gradients add up to the whole batch's. A count of 0 makes both 0. The server refuses by name a
    count that the method needs and that is None, one that it does not read, and one below the
    batch's own.

    Attributes:
        num_tokens: Tokens with response_mask 1, >= 0. TOKEN_MEAN divides by it, and the
            normalization of TOKEN, PREFIX and TURN weights.
        num_sequences: Sequences with at least one such token, >= 0. SEQ_MEAN_* divide by it, and
            the normalization of SEQUENCE and GEOMETRIC weights.
        num_kept_tokens: Tokens that the rules kept, >= 0. TOKEN_MEAN divides by it where the
            denominator is KEPT, which requires it, or GLOBAL.
        num_ranks: Data-parallel ranks, >= 1: loss and gradient are multiplied by it, for trainers
            with an all-reduce that averages. None: 1; the ranks' losses add up to the whole
            batch's.
        weight_sum: Sum over all ranks of the bounded importance weights (SEQUENCE, GEOMETRIC: one
            per sequence), >= 0; normalized weights are divided by weight_sum / num_tokens
            (num_sequences). Required where the weight is normalized and a loss reads the counts.
        num_kept_sequences: Sequences with a kept token, >= 0. SEQ_MEAN_* divide by it as
            TOKEN_MEAN does by num_kept_tokens.
        weight_mean: Mean over all ranks of the bounded importance weights, > 0, by which
            normalized weights are divided; instead of weight_sum. ``Client.metrics_of`` has it.
        selection_scope: The tokens among which KL_COV and CLIP_COV select, which require it:
            "call", those of each call.
    """

    num_tokens: int | None = None
    num_sequences: int | None = None
    num_kept_tokens: int | None = None
    num_ranks: int | None = None
    weight_sum: float | None = None
    num_kept_sequences: int | None = None
    selection_scope: SelectionScope | str | None = None
    weight_mean: float | None = None
