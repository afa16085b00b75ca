"""prime-rl's loss of its ``ref_kl`` component as a method."""

from __future__ import annotations

from counterweight_rl.choices import (
    Aggregation,
    Bound,
    Estimator,
    KlEstimator,
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
    KlPenalty,
    PolicyLoss,
    RejectionRule,
)

# prime-rl's constants of this loss. The rule makes weights 0, and others are 1, because the penalty
# is of all tokens; it is the KL penalty, with the rollout's log-probs as the reference's.
METHOD = CorrectionConfig(
    importance_weight=ImportanceWeight(
        ratio_source=RatioSource.OLD_ROLLOUT, level=Level.TOKEN, bound=Bound.NONE
    ),
    rules=(
        RejectionRule(
            ratio_source=RatioSource.CURRENT_ROLLOUT,
            estimator=Estimator.DIFFERENCE,
            aggregation=Aggregation.TOKEN,
            lower=-0.2,
            effect=RuleEffect.ZERO_WEIGHT,
        ),
    ),
    drift_source=RatioSource.CURRENT_ROLLOUT,
    policy_loss=PolicyLoss(
        surrogate=Surrogate.IMPORTANCE_SAMPLING,
        aggregation=LossAggregation.TOKEN_SUM,
        denominator=LossDenominator.ORIGINAL,
        ratio_source=RatioSource.CURRENT_ROLLOUT,
        allow_double_correction=True,
    ),
    # prime-rl's square has no 1/2.
    kl_penalty=KlPenalty(estimator=KlEstimator.K2, coefficient=2e-3),
)
