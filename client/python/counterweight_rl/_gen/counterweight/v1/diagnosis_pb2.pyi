from ...counterweight.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_NOTE: _ClassVar[Severity]
    SEVERITY_WARNING: _ClassVar[Severity]
    SEVERITY_ERROR: _ClassVar[Severity]

class AuditAdvice(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUDIT_ADVICE_UNSPECIFIED: _ClassVar[AuditAdvice]
    AUDIT_ADVICE_MORE: _ClassVar[AuditAdvice]
    AUDIT_ADVICE_ENOUGH: _ClassVar[AuditAdvice]
    AUDIT_ADVICE_LESS: _ClassVar[AuditAdvice]
SEVERITY_UNSPECIFIED: Severity
SEVERITY_NOTE: Severity
SEVERITY_WARNING: Severity
SEVERITY_ERROR: Severity
AUDIT_ADVICE_UNSPECIFIED: AuditAdvice
AUDIT_ADVICE_MORE: AuditAdvice
AUDIT_ADVICE_ENOUGH: AuditAdvice
AUDIT_ADVICE_LESS: AuditAdvice

class Finding(_message.Message):
    __slots__ = ("name", "severity", "confidence", "stream", "observed", "repaired", "evidence", "sequence", "position", "sentence")
    class EvidenceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    severity: Severity
    confidence: float
    stream: _tensor_pb2.TensorRole
    observed: float
    repaired: float
    evidence: _containers.ScalarMap[str, float]
    sequence: int
    position: int
    sentence: str
    def __init__(self, name: _Optional[str] = ..., severity: _Optional[_Union[Severity, str]] = ..., confidence: _Optional[float] = ..., stream: _Optional[_Union[_tensor_pb2.TensorRole, str]] = ..., observed: _Optional[float] = ..., repaired: _Optional[float] = ..., evidence: _Optional[_Mapping[str, float]] = ..., sequence: _Optional[int] = ..., position: _Optional[int] = ..., sentence: _Optional[str] = ...) -> None: ...

class Attribution(_message.Message):
    __slots__ = ("numerator", "denominator", "tokens", "sequences", "causes", "by_magnitude", "by_position", "by_length", "by_log_ratio", "heaviest", "sentence")
    NUMERATOR_FIELD_NUMBER: _ClassVar[int]
    DENOMINATOR_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    BY_MAGNITUDE_FIELD_NUMBER: _ClassVar[int]
    BY_POSITION_FIELD_NUMBER: _ClassVar[int]
    BY_LENGTH_FIELD_NUMBER: _ClassVar[int]
    BY_LOG_RATIO_FIELD_NUMBER: _ClassVar[int]
    HEAVIEST_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    numerator: _tensor_pb2.TensorRole
    denominator: _tensor_pb2.TensorRole
    tokens: int
    sequences: int
    causes: Causes
    by_magnitude: _containers.RepeatedCompositeFieldContainer[Bucket]
    by_position: _containers.RepeatedCompositeFieldContainer[Bucket]
    by_length: _containers.RepeatedCompositeFieldContainer[Bucket]
    by_log_ratio: _containers.RepeatedCompositeFieldContainer[Bucket]
    heaviest: _containers.RepeatedCompositeFieldContainer[HeavySequence]
    sentence: str
    def __init__(self, numerator: _Optional[_Union[_tensor_pb2.TensorRole, str]] = ..., denominator: _Optional[_Union[_tensor_pb2.TensorRole, str]] = ..., tokens: _Optional[int] = ..., sequences: _Optional[int] = ..., causes: _Optional[_Union[Causes, _Mapping]] = ..., by_magnitude: _Optional[_Iterable[_Union[Bucket, _Mapping]]] = ..., by_position: _Optional[_Iterable[_Union[Bucket, _Mapping]]] = ..., by_length: _Optional[_Iterable[_Union[Bucket, _Mapping]]] = ..., by_log_ratio: _Optional[_Iterable[_Union[Bucket, _Mapping]]] = ..., heaviest: _Optional[_Iterable[_Union[HeavySequence, _Mapping]]] = ..., sentence: _Optional[str] = ...) -> None: ...

class Causes(_message.Message):
    __slots__ = ("k3", "kl", "k3_engine_staleness", "k3_update", "k3_interaction", "kl_engine_staleness", "kl_update", "k3_engine", "fresh_tokens", "fresh_k3")
    K3_FIELD_NUMBER: _ClassVar[int]
    KL_FIELD_NUMBER: _ClassVar[int]
    K3_ENGINE_STALENESS_FIELD_NUMBER: _ClassVar[int]
    K3_UPDATE_FIELD_NUMBER: _ClassVar[int]
    K3_INTERACTION_FIELD_NUMBER: _ClassVar[int]
    KL_ENGINE_STALENESS_FIELD_NUMBER: _ClassVar[int]
    KL_UPDATE_FIELD_NUMBER: _ClassVar[int]
    K3_ENGINE_FIELD_NUMBER: _ClassVar[int]
    FRESH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FRESH_K3_FIELD_NUMBER: _ClassVar[int]
    k3: float
    kl: float
    k3_engine_staleness: float
    k3_update: float
    k3_interaction: float
    kl_engine_staleness: float
    kl_update: float
    k3_engine: float
    fresh_tokens: int
    fresh_k3: float
    def __init__(self, k3: _Optional[float] = ..., kl: _Optional[float] = ..., k3_engine_staleness: _Optional[float] = ..., k3_update: _Optional[float] = ..., k3_interaction: _Optional[float] = ..., kl_engine_staleness: _Optional[float] = ..., kl_update: _Optional[float] = ..., k3_engine: _Optional[float] = ..., fresh_tokens: _Optional[int] = ..., fresh_k3: _Optional[float] = ...) -> None: ...

class Bucket(_message.Message):
    __slots__ = ("first", "tokens", "log_ratio", "k3", "k3_expected")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOG_RATIO_FIELD_NUMBER: _ClassVar[int]
    K3_FIELD_NUMBER: _ClassVar[int]
    K3_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    first: float
    tokens: int
    log_ratio: float
    k3: float
    k3_expected: float
    def __init__(self, first: _Optional[float] = ..., tokens: _Optional[int] = ..., log_ratio: _Optional[float] = ..., k3: _Optional[float] = ..., k3_expected: _Optional[float] = ...) -> None: ...

class HeavySequence(_message.Message):
    __slots__ = ("sequence", "tokens", "k3")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    K3_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    tokens: int
    k3: float
    def __init__(self, sequence: _Optional[int] = ..., tokens: _Optional[int] = ..., k3: _Optional[float] = ...) -> None: ...

class Audit(_message.Message):
    __slots__ = ("before_update", "rows", "sums", "alarm")
    BEFORE_UPDATE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    ALARM_FIELD_NUMBER: _ClassVar[int]
    before_update: bool
    rows: _containers.RepeatedScalarFieldContainer[int]
    sums: _containers.RepeatedScalarFieldContainer[float]
    alarm: float
    def __init__(self, before_update: bool = ..., rows: _Optional[_Iterable[int]] = ..., sums: _Optional[_Iterable[float]] = ..., alarm: _Optional[float] = ...) -> None: ...

class AuditSummary(_message.Message):
    __slots__ = ("rows", "tokens", "k3", "low", "high", "more_rows", "advice", "sentence", "sums")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    K3_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    MORE_ROWS_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    tokens: int
    k3: float
    low: float
    high: float
    more_rows: int
    advice: AuditAdvice
    sentence: str
    sums: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, rows: _Optional[int] = ..., tokens: _Optional[int] = ..., k3: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., more_rows: _Optional[int] = ..., advice: _Optional[_Union[AuditAdvice, str]] = ..., sentence: _Optional[str] = ..., sums: _Optional[_Iterable[float]] = ...) -> None: ...

class Shadow(_message.Message):
    __slots__ = ("method", "tokens", "kept_token_fraction", "effective_sample_size", "kept_effective_sample_size", "bias", "norm_ratio", "cosine")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    KEPT_TOKEN_FRACTION_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_SAMPLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    KEPT_EFFECTIVE_SAMPLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    NORM_RATIO_FIELD_NUMBER: _ClassVar[int]
    COSINE_FIELD_NUMBER: _ClassVar[int]
    method: str
    tokens: int
    kept_token_fraction: float
    effective_sample_size: float
    kept_effective_sample_size: float
    bias: float
    norm_ratio: float
    cosine: float
    def __init__(self, method: _Optional[str] = ..., tokens: _Optional[int] = ..., kept_token_fraction: _Optional[float] = ..., effective_sample_size: _Optional[float] = ..., kept_effective_sample_size: _Optional[float] = ..., bias: _Optional[float] = ..., norm_ratio: _Optional[float] = ..., cosine: _Optional[float] = ...) -> None: ...
