"""The attributes of NeMo-RL's ``ClippedPGLossFn`` as a surrogate and a correction."""

from __future__ import annotations

from typing import Any

from counterweight_rl.choices import (
    Aggregation,
    Bound,
    Estimator,
    Level,
    LossAggregation,
    LossDenominator,
    RatioSource,
    RuleEffect,
    Surrogate,
)
from counterweight_rl.config import (
    CorrectionConfig,
    ImportanceWeight,
    PolicyLoss,
    RejectionRule,
)

_TOKEN_LEVEL = "token_level"


def surrogate_of(loss_fn: Any) -> PolicyLoss:
    """Returns the surrogate, divided by global counts.

    Raises:
        ValueError: A combination that NeMo-RL computes and the service does not.
    """
    token_level = loss_fn.loss_type.value == _TOKEN_LEVEL
    aggregation = LossAggregation.SEQ_MEAN_TOKEN_MEAN
    if token_level:
        aggregation = LossAggregation.TOKEN_MEAN
    common: dict[str, Any] = {
        "aggregation": aggregation,
        "denominator": LossDenominator.GLOBAL,
        "ratio_source": RatioSource.CURRENT_OLD,
    }
    if loss_fn.disable_ppo_ratio and not loss_fn.force_on_policy_ratio:
        if loss_fn.ratio_clip_c is not None:
            raise ValueError(
                "loss_fn.ratio_clip_c cannot be used with disable_ppo_ratio: there is no ratio to "
                "clip"
            )
        return PolicyLoss(surrogate=Surrogate.REINFORCE, **common)
    common["clip_low"] = loss_fn.ratio_clip_min
    common["clip_high"] = loss_fn.ratio_clip_max
    if loss_fn.use_cispo:
        return PolicyLoss(surrogate=Surrogate.CISPO, **common)
    if loss_fn.sequence_level_importance_ratios and not loss_fn.force_on_policy_ratio:
        if loss_fn.ratio_clip_c is not None:
            raise ValueError(
                "loss_fn.ratio_clip_c cannot be used with sequence_level_importance_ratios: the "
                "service's GSPO has no dual clip"
            )
        return PolicyLoss(surrogate=Surrogate.GSPO, **common)
    return PolicyLoss(surrogate=Surrogate.PPO_CLIP, dual_clip=loss_fn.ratio_clip_c, **common)


def correction_of(loss_fn: Any) -> CorrectionConfig:
    """Returns the importance sampling: weights old/rollout, truncated or masked."""
    if not loss_fn.use_importance_sampling_correction:
        return CorrectionConfig()
    level = Level.TOKEN
    if loss_fn.sequence_level_importance_ratios:
        level = Level.SEQUENCE
    kind = loss_fn.truncated_importance_sampling_type
    lower = loss_fn.truncated_importance_sampling_ratio_min
    upper = loss_fn.truncated_importance_sampling_ratio
    bound: dict[str, Any] = {"bound": Bound.NONE}
    rules = []
    if upper is not None and kind == "tis":
        bound = {"bound": Bound.TRUNCATE, "lower": lower, "upper": upper}
    elif upper is not None and kind == "icepop":
        bound = {"bound": Bound.MASK, "lower": lower, "upper": upper}
    elif upper is not None and kind == "seq-mask-tis":
        rule = RejectionRule(
            ratio_source=RatioSource.OLD_ROLLOUT,
            estimator=Estimator.RATIO,
            aggregation=Aggregation.MEAN,
            lower=lower,
            upper=upper,
            effect=RuleEffect.ZERO_WEIGHT,
        )
        rules = [rule]
    weight = ImportanceWeight(ratio_source=RatioSource.OLD_ROLLOUT, level=level, **bound)
    return CorrectionConfig(importance_weight=weight, rules=rules)
