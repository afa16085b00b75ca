"""Client of Counterweight: importance weights, keep masks and drift metrics for LLM RL batches.

    import counterweight as cw

    with cw.Client("localhost:50051") as client:
        result = client.correct(
            rollout_log_probs=mu,      # [B, T] nats, numpy or torch
            old_log_probs=old,         # [B, T] nats
            response_mask=mask,        # [B, T] 1 = the token counts
            method="token_tis",
        )
    result.weights, result.keep_mask, result.metrics

Everything public is importable from here; modules are not.
"""

from counterweight._version import __version__
from counterweight.client import Client, TlsConfig
from counterweight.config import (
    Aggregation,
    Bound,
    CorrectionConfig,
    Dialect,
    Estimator,
    ImportanceWeight,
    KlEstimator,
    KlPenalty,
    Level,
    LossAggregation,
    LossDenominator,
    Method,
    NonFinitePolicy,
    PolicyLoss,
    Preset,
    RatioSource,
    RejectionRule,
    RuleCondition,
    RuleEffect,
    RuleEvaluation,
    Surrogate,
)
from counterweight.errors import (
    CounterweightError,
    DeadlineError,
    InvalidRequestError,
    OverloadedError,
    UnavailableError,
    Violation,
)
from counterweight.info import Device, Limits, MethodInfo, ParameterInfo, ServerInfo
from counterweight.result import Result, RuleSummary, Timing

__all__ = [
    "Aggregation",
    "Bound",
    "Client",
    "CorrectionConfig",
    "CounterweightError",
    "DeadlineError",
    "Device",
    "Dialect",
    "Estimator",
    "ImportanceWeight",
    "InvalidRequestError",
    "KlEstimator",
    "KlPenalty",
    "Level",
    "Limits",
    "LossAggregation",
    "LossDenominator",
    "Method",
    "MethodInfo",
    "NonFinitePolicy",
    "OverloadedError",
    "ParameterInfo",
    "PolicyLoss",
    "Preset",
    "RatioSource",
    "RejectionRule",
    "Result",
    "RuleCondition",
    "RuleEffect",
    "RuleEvaluation",
    "RuleSummary",
    "ServerInfo",
    "Surrogate",
    "Timing",
    "TlsConfig",
    "UnavailableError",
    "Violation",
    "__version__",
]
