from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PartialSums(_message.Message):
    __slots__ = ("sums", "maxima")
    SUMS_FIELD_NUMBER: _ClassVar[int]
    MAXIMA_FIELD_NUMBER: _ClassVar[int]
    sums: _containers.RepeatedScalarFieldContainer[float]
    maxima: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, sums: _Optional[_Iterable[float]] = ..., maxima: _Optional[_Iterable[float]] = ...) -> None: ...

class BatchSums(_message.Message):
    __slots__ = ("sequences", "nonempty_sequences", "tokens", "kept_tokens", "kept_sequences", "non_finite_tokens", "drift", "weight", "loss", "rules", "staleness")
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    NONEMPTY_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    KEPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KEPT_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    NON_FINITE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    sequences: int
    nonempty_sequences: int
    tokens: int
    kept_tokens: int
    kept_sequences: int
    non_finite_tokens: int
    drift: DriftSums
    weight: WeightSums
    loss: LossSums
    rules: _containers.RepeatedCompositeFieldContainer[RuleSums]
    staleness: StalenessSums
    def __init__(self, sequences: _Optional[int] = ..., nonempty_sequences: _Optional[int] = ..., tokens: _Optional[int] = ..., kept_tokens: _Optional[int] = ..., kept_sequences: _Optional[int] = ..., non_finite_tokens: _Optional[int] = ..., drift: _Optional[_Union[DriftSums, _Mapping]] = ..., weight: _Optional[_Union[WeightSums, _Mapping]] = ..., loss: _Optional[_Union[LossSums, _Mapping]] = ..., rules: _Optional[_Iterable[_Union[RuleSums, _Mapping]]] = ..., staleness: _Optional[_Union[StalenessSums, _Mapping]] = ...) -> None: ...

class DriftSums(_message.Message):
    __slots__ = ("log_ratio", "k2", "k3", "excess", "excess_squared", "log_ppl_difference", "ppl_ratio_excess", "chi2_sequence", "token_histogram", "sequence_histogram")
    LOG_RATIO_FIELD_NUMBER: _ClassVar[int]
    K2_FIELD_NUMBER: _ClassVar[int]
    K3_FIELD_NUMBER: _ClassVar[int]
    EXCESS_FIELD_NUMBER: _ClassVar[int]
    EXCESS_SQUARED_FIELD_NUMBER: _ClassVar[int]
    LOG_PPL_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    PPL_RATIO_EXCESS_FIELD_NUMBER: _ClassVar[int]
    CHI2_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    log_ratio: float
    k2: float
    k3: float
    excess: float
    excess_squared: float
    log_ppl_difference: float
    ppl_ratio_excess: float
    chi2_sequence: float
    token_histogram: _containers.RepeatedScalarFieldContainer[int]
    sequence_histogram: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, log_ratio: _Optional[float] = ..., k2: _Optional[float] = ..., k3: _Optional[float] = ..., excess: _Optional[float] = ..., excess_squared: _Optional[float] = ..., log_ppl_difference: _Optional[float] = ..., ppl_ratio_excess: _Optional[float] = ..., chi2_sequence: _Optional[float] = ..., token_histogram: _Optional[_Iterable[int]] = ..., sequence_histogram: _Optional[_Iterable[int]] = ...) -> None: ...

class WeightSums(_message.Message):
    __slots__ = ("weight", "weight_squared", "excess", "excess_squared", "max", "tokens_high", "tokens_outside", "kept_weight", "kept_weight_squared")
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SQUARED_FIELD_NUMBER: _ClassVar[int]
    EXCESS_FIELD_NUMBER: _ClassVar[int]
    EXCESS_SQUARED_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    TOKENS_HIGH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_OUTSIDE_FIELD_NUMBER: _ClassVar[int]
    KEPT_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    KEPT_WEIGHT_SQUARED_FIELD_NUMBER: _ClassVar[int]
    weight: float
    weight_squared: float
    excess: float
    excess_squared: float
    max: float
    tokens_high: int
    tokens_outside: int
    kept_weight: float
    kept_weight_squared: float
    def __init__(self, weight: _Optional[float] = ..., weight_squared: _Optional[float] = ..., excess: _Optional[float] = ..., excess_squared: _Optional[float] = ..., max: _Optional[float] = ..., tokens_high: _Optional[int] = ..., tokens_outside: _Optional[int] = ..., kept_weight: _Optional[float] = ..., kept_weight_squared: _Optional[float] = ...) -> None: ...

class LossSums(_message.Message):
    __slots__ = ("total", "policy", "log_ratio_kept", "gradient_squared", "slope", "slope_clipped", "slope_rejected", "clipped", "high", "low", "kl_penalty")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    LOG_RATIO_KEPT_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_SQUARED_FIELD_NUMBER: _ClassVar[int]
    SLOPE_FIELD_NUMBER: _ClassVar[int]
    SLOPE_CLIPPED_FIELD_NUMBER: _ClassVar[int]
    SLOPE_REJECTED_FIELD_NUMBER: _ClassVar[int]
    CLIPPED_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    KL_PENALTY_FIELD_NUMBER: _ClassVar[int]
    total: float
    policy: float
    log_ratio_kept: float
    gradient_squared: float
    slope: float
    slope_clipped: float
    slope_rejected: float
    clipped: int
    high: int
    low: int
    kl_penalty: KlPenaltySums
    def __init__(self, total: _Optional[float] = ..., policy: _Optional[float] = ..., log_ratio_kept: _Optional[float] = ..., gradient_squared: _Optional[float] = ..., slope: _Optional[float] = ..., slope_clipped: _Optional[float] = ..., slope_rejected: _Optional[float] = ..., clipped: _Optional[int] = ..., high: _Optional[int] = ..., low: _Optional[int] = ..., kl_penalty: _Optional[_Union[KlPenaltySums, _Mapping]] = ...) -> None: ...

class KlPenaltySums(_message.Message):
    __slots__ = ("penalty", "kl", "kl_tokens")
    PENALTY_FIELD_NUMBER: _ClassVar[int]
    KL_FIELD_NUMBER: _ClassVar[int]
    KL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    penalty: float
    kl: float
    kl_tokens: int
    def __init__(self, penalty: _Optional[float] = ..., kl: _Optional[float] = ..., kl_tokens: _Optional[int] = ...) -> None: ...

class RuleSums(_message.Message):
    __slots__ = ("name", "dropped_tokens", "dropped_sequences")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DROPPED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    dropped_tokens: int
    dropped_sequences: int
    def __init__(self, name: _Optional[str] = ..., dropped_tokens: _Optional[int] = ..., dropped_sequences: _Optional[int] = ...) -> None: ...

class StalenessSums(_message.Message):
    __slots__ = ("buckets", "unknown_tokens", "staleness", "histogram")
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    buckets: _containers.RepeatedCompositeFieldContainer[StalenessBucketSums]
    unknown_tokens: int
    staleness: float
    histogram: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, buckets: _Optional[_Iterable[_Union[StalenessBucketSums, _Mapping]]] = ..., unknown_tokens: _Optional[int] = ..., staleness: _Optional[float] = ..., histogram: _Optional[_Iterable[int]] = ...) -> None: ...

class StalenessBucketSums(_message.Message):
    __slots__ = ("tokens", "log_ratio", "k3")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOG_RATIO_FIELD_NUMBER: _ClassVar[int]
    K3_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    log_ratio: float
    k3: float
    def __init__(self, tokens: _Optional[int] = ..., log_ratio: _Optional[float] = ..., k3: _Optional[float] = ...) -> None: ...
