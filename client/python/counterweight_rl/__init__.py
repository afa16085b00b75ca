"""Client of Counterweight: off-policy corrections and policy losses for LLM RL batches.

    import counterweight_rl as cw

    with cw.Client("localhost:50051") as client:
        result = client.correct(
            rollout_log_probs=mu,      # [B, T] nats, numpy or torch
            old_log_probs=old,         # [B, T] nats
            response_mask=mask,        # [B, T] 1 = the token counts
            method="token_tis",
        )
    result.weights, result.keep_mask, result.metrics

All public names are importable from here, except ``counterweight_rl.aio``, the asyncio client, and
modules that need torch: ``counterweight_rl.torch`` makes the policy loss an autograd node, and
``counterweight_rl.compat`` provides other systems' own functions.
"""

from counterweight_rl._version import __version__
from counterweight_rl.applied_receipt import applied
from counterweight_rl.arrays.version_spans import spans_of
from counterweight_rl.attribution import Attribution, Bucket, Causes, HeavySequence
from counterweight_rl.audit_rows import Audit, AuditedDrift, AuditSums
from counterweight_rl.choices import (
    Aggregation,
    Bound,
    Estimator,
    GroupEstimator,
    GroupVoters,
    KlEstimator,
    Level,
    LonelyGroup,
    LossAggregation,
    LossDenominator,
    NonFinitePolicy,
    RatioSource,
    RewardStd,
    RuleCondition,
    RuleEffect,
    RuleEvaluation,
    Surrogate,
    Whitening,
)
from counterweight_rl.client import Client
from counterweight_rl.config import (
    CorrectionConfig,
    Dialect,
    GlobalCounts,
    ImportanceWeight,
    KlPenalty,
    Method,
    PolicyLoss,
    Preset,
    RejectionRule,
    SequenceFilter,
)
from counterweight_rl.declare_run import RunDeclaration
from counterweight_rl.diagnosis import Diagnosis, Finding
from counterweight_rl.errors import (
    CopyWarning,
    CounterweightError,
    DeadlineError,
    InvalidRequestError,
    OverloadedError,
    UnavailableError,
    Violation,
)
from counterweight_rl.examination import diagnose
from counterweight_rl.group_baseline import GroupAdvantages, GroupBaseline
from counterweight_rl.info import (
    Device,
    DialectReleases,
    Limits,
    MethodInfo,
    ParameterInfo,
    Release,
    ServerInfo,
)
from counterweight_rl.partial_sums import PartialSums
from counterweight_rl.receipt import Receipt
from counterweight_rl.recording.settings import Record
from counterweight_rl.result import (
    ResolvedBound,
    Result,
    RuleSummary,
    Staleness,
    StalenessBucket,
    Timing,
)
from counterweight_rl.shadow import Shadow
from counterweight_rl.step_report import StepReport
from counterweight_rl.step_totals import StepTotals
from counterweight_rl.transport.channel import TlsConfig
from counterweight_rl.transport.retry import RetryPolicy

__all__ = [
    "Aggregation",
    "Attribution",
    "Audit",
    "AuditSums",
    "AuditedDrift",
    "Bound",
    "Bucket",
    "Causes",
    "Client",
    "CopyWarning",
    "CorrectionConfig",
    "CounterweightError",
    "DeadlineError",
    "Device",
    "Diagnosis",
    "Dialect",
    "DialectReleases",
    "Estimator",
    "Finding",
    "GlobalCounts",
    "GroupAdvantages",
    "GroupBaseline",
    "GroupEstimator",
    "GroupVoters",
    "HeavySequence",
    "ImportanceWeight",
    "InvalidRequestError",
    "KlEstimator",
    "KlPenalty",
    "Level",
    "Limits",
    "LonelyGroup",
    "LossAggregation",
    "LossDenominator",
    "Method",
    "MethodInfo",
    "NonFinitePolicy",
    "OverloadedError",
    "ParameterInfo",
    "PartialSums",
    "PolicyLoss",
    "Preset",
    "RatioSource",
    "Receipt",
    "Record",
    "RejectionRule",
    "Release",
    "ResolvedBound",
    "Result",
    "RetryPolicy",
    "RewardStd",
    "RuleCondition",
    "RuleEffect",
    "RuleEvaluation",
    "RuleSummary",
    "RunDeclaration",
    "SequenceFilter",
    "ServerInfo",
    "Shadow",
    "Staleness",
    "StalenessBucket",
    "StepReport",
    "StepTotals",
    "Surrogate",
    "Timing",
    "TlsConfig",
    "UnavailableError",
    "Violation",
    "Whitening",
    "__version__",
    "applied",
    "diagnose",
    "spans_of",
]
