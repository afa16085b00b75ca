from ...counterweight.v1 import diagnosis_pb2 as _diagnosis_pb2
from ...counterweight.v1 import group_baseline_pb2 as _group_baseline_pb2
from ...counterweight.v1 import method_pb2 as _method_pb2
from ...counterweight.v1 import receipt_pb2 as _receipt_pb2
from ...counterweight.v1 import sums_pb2 as _sums_pb2
from ...counterweight.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SelectionScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SELECTION_SCOPE_UNSPECIFIED: _ClassVar[SelectionScope]
    SELECTION_SCOPE_CALL: _ClassVar[SelectionScope]
SELECTION_SCOPE_UNSPECIFIED: SelectionScope
SELECTION_SCOPE_CALL: SelectionScope

class CorrectRequest(_message.Message):
    __slots__ = ("request_id", "labels", "layout", "tensors", "method", "outputs", "non_finite_policy", "seed", "global_counts", "group_ids", "trajectory_ids", "version_spans", "compute_loss", "destinations", "omit_metrics", "row_divisors", "partial_sums", "audit", "shadows", "omit_loss")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    NON_FINITE_POLICY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_COUNTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_IDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_SPANS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_LOSS_FIELD_NUMBER: _ClassVar[int]
    DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    OMIT_METRICS_FIELD_NUMBER: _ClassVar[int]
    ROW_DIVISORS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_SUMS_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    SHADOWS_FIELD_NUMBER: _ClassVar[int]
    OMIT_LOSS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    labels: Labels
    layout: _tensor_pb2.Layout
    tensors: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    method: _method_pb2.Method
    outputs: _containers.RepeatedScalarFieldContainer[_tensor_pb2.TensorRole]
    non_finite_policy: _tensor_pb2.NonFinitePolicy
    seed: int
    global_counts: GlobalCounts
    group_ids: _containers.RepeatedScalarFieldContainer[int]
    trajectory_ids: _containers.RepeatedScalarFieldContainer[int]
    version_spans: _containers.RepeatedCompositeFieldContainer[VersionSpan]
    compute_loss: bool
    destinations: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    omit_metrics: bool
    row_divisors: _containers.RepeatedScalarFieldContainer[float]
    partial_sums: bool
    audit: _diagnosis_pb2.Audit
    shadows: _containers.RepeatedCompositeFieldContainer[_method_pb2.Method]
    omit_loss: bool
    def __init__(self, request_id: _Optional[str] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., layout: _Optional[_Union[_tensor_pb2.Layout, _Mapping]] = ..., tensors: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., method: _Optional[_Union[_method_pb2.Method, _Mapping]] = ..., outputs: _Optional[_Iterable[_Union[_tensor_pb2.TensorRole, str]]] = ..., non_finite_policy: _Optional[_Union[_tensor_pb2.NonFinitePolicy, str]] = ..., seed: _Optional[int] = ..., global_counts: _Optional[_Union[GlobalCounts, _Mapping]] = ..., group_ids: _Optional[_Iterable[int]] = ..., trajectory_ids: _Optional[_Iterable[int]] = ..., version_spans: _Optional[_Iterable[_Union[VersionSpan, _Mapping]]] = ..., compute_loss: bool = ..., destinations: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., omit_metrics: bool = ..., row_divisors: _Optional[_Iterable[float]] = ..., partial_sums: bool = ..., audit: _Optional[_Union[_diagnosis_pb2.Audit, _Mapping]] = ..., shadows: _Optional[_Iterable[_Union[_method_pb2.Method, _Mapping]]] = ..., omit_loss: bool = ...) -> None: ...

class CorrectResponse(_message.Message):
    __slots__ = ("request_id", "tensors", "loss", "metrics", "rules", "non_finite_tokens", "numerics_version", "backend", "timing", "warnings", "staleness", "sums", "resolved_bounds")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    NON_FINITE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_VERSION_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tensors: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    loss: float
    metrics: _containers.ScalarMap[str, float]
    rules: _containers.RepeatedCompositeFieldContainer[RuleSummary]
    non_finite_tokens: int
    numerics_version: int
    backend: str
    timing: Timing
    warnings: _containers.RepeatedScalarFieldContainer[str]
    staleness: StalenessSummary
    sums: _sums_pb2.PartialSums
    resolved_bounds: _containers.RepeatedCompositeFieldContainer[ResolvedBound]
    def __init__(self, request_id: _Optional[str] = ..., tensors: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., loss: _Optional[float] = ..., metrics: _Optional[_Mapping[str, float]] = ..., rules: _Optional[_Iterable[_Union[RuleSummary, _Mapping]]] = ..., non_finite_tokens: _Optional[int] = ..., numerics_version: _Optional[int] = ..., backend: _Optional[str] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., staleness: _Optional[_Union[StalenessSummary, _Mapping]] = ..., sums: _Optional[_Union[_sums_pb2.PartialSums, _Mapping]] = ..., resolved_bounds: _Optional[_Iterable[_Union[ResolvedBound, _Mapping]]] = ...) -> None: ...

class ResolvedBound(_message.Message):
    __slots__ = ("field", "value", "is_calm", "calm_steps", "calm_weights")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    IS_CALM_FIELD_NUMBER: _ClassVar[int]
    CALM_STEPS_FIELD_NUMBER: _ClassVar[int]
    CALM_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    field: str
    value: float
    is_calm: bool
    calm_steps: int
    calm_weights: int
    def __init__(self, field: _Optional[str] = ..., value: _Optional[float] = ..., is_calm: bool = ..., calm_steps: _Optional[int] = ..., calm_weights: _Optional[int] = ...) -> None: ...

class StalenessSummary(_message.Message):
    __slots__ = ("buckets", "unknown_tokens", "mean", "max")
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    buckets: _containers.RepeatedCompositeFieldContainer[StalenessBucket]
    unknown_tokens: int
    mean: float
    max: int
    def __init__(self, buckets: _Optional[_Iterable[_Union[StalenessBucket, _Mapping]]] = ..., unknown_tokens: _Optional[int] = ..., mean: _Optional[float] = ..., max: _Optional[int] = ...) -> None: ...

class StalenessBucket(_message.Message):
    __slots__ = ("first", "last", "tokens", "kl", "k3")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    KL_FIELD_NUMBER: _ClassVar[int]
    K3_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    tokens: int
    kl: float
    k3: float
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., tokens: _Optional[int] = ..., kl: _Optional[float] = ..., k3: _Optional[float] = ...) -> None: ...

class RuleSummary(_message.Message):
    __slots__ = ("name", "dropped_tokens", "dropped_sequences")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DROPPED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    dropped_tokens: int
    dropped_sequences: int
    def __init__(self, name: _Optional[str] = ..., dropped_tokens: _Optional[int] = ..., dropped_sequences: _Optional[int] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("decode_seconds", "queue_seconds", "compute_seconds", "encode_seconds", "receive_seconds")
    DECODE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    decode_seconds: float
    queue_seconds: float
    compute_seconds: float
    encode_seconds: float
    receive_seconds: float
    def __init__(self, decode_seconds: _Optional[float] = ..., queue_seconds: _Optional[float] = ..., compute_seconds: _Optional[float] = ..., encode_seconds: _Optional[float] = ..., receive_seconds: _Optional[float] = ...) -> None: ...

class Labels(_message.Message):
    __slots__ = ("run", "replica", "policy_version", "step")
    RUN_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    run: str
    replica: str
    policy_version: int
    step: int
    def __init__(self, run: _Optional[str] = ..., replica: _Optional[str] = ..., policy_version: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class GlobalCounts(_message.Message):
    __slots__ = ("num_tokens", "num_sequences", "num_kept_tokens", "num_ranks", "weight_sum", "num_kept_sequences", "selection_scope", "weight_mean")
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    NUM_KEPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_RANKS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SUM_FIELD_NUMBER: _ClassVar[int]
    NUM_KEPT_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SELECTION_SCOPE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_MEAN_FIELD_NUMBER: _ClassVar[int]
    num_tokens: int
    num_sequences: int
    num_kept_tokens: int
    num_ranks: int
    weight_sum: float
    num_kept_sequences: int
    selection_scope: SelectionScope
    weight_mean: float
    def __init__(self, num_tokens: _Optional[int] = ..., num_sequences: _Optional[int] = ..., num_kept_tokens: _Optional[int] = ..., num_ranks: _Optional[int] = ..., weight_sum: _Optional[float] = ..., num_kept_sequences: _Optional[int] = ..., selection_scope: _Optional[_Union[SelectionScope, str]] = ..., weight_mean: _Optional[float] = ...) -> None: ...

class VersionSpan(_message.Message):
    __slots__ = ("sequence", "start", "end", "policy_version")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    start: int
    end: int
    policy_version: int
    def __init__(self, sequence: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., policy_version: _Optional[int] = ...) -> None: ...

class CorrectStreamRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: CorrectRequest
    chunk: Chunk
    def __init__(self, header: _Optional[_Union[CorrectRequest, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class CorrectStreamResponse(_message.Message):
    __slots__ = ("admission", "result", "chunk", "summary")
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    admission: Admission
    result: CorrectResponse
    chunk: Chunk
    summary: StreamSummary
    def __init__(self, admission: _Optional[_Union[Admission, _Mapping]] = ..., result: _Optional[_Union[CorrectResponse, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., summary: _Optional[_Union[StreamSummary, _Mapping]] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("tensor", "offset", "data")
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    tensor: int
    offset: int
    data: bytes
    def __init__(self, tensor: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Admission(_message.Message):
    __slots__ = ("reserved_bytes", "chunk_bytes")
    RESERVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    reserved_bytes: int
    chunk_bytes: int
    def __init__(self, reserved_bytes: _Optional[int] = ..., chunk_bytes: _Optional[int] = ...) -> None: ...

class StreamSummary(_message.Message):
    __slots__ = ("received_bytes", "sent_bytes", "timing")
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    received_bytes: int
    sent_bytes: int
    timing: Timing
    def __init__(self, received_bytes: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("request_id", "labels", "sums", "partial_sums", "method", "method_of_batch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_SUMS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    METHOD_OF_BATCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    labels: Labels
    sums: _sums_pb2.BatchSums
    partial_sums: _sums_pb2.PartialSums
    method: _method_pb2.Method
    method_of_batch: MethodOfBatch
    def __init__(self, request_id: _Optional[str] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., sums: _Optional[_Union[_sums_pb2.BatchSums, _Mapping]] = ..., partial_sums: _Optional[_Union[_sums_pb2.PartialSums, _Mapping]] = ..., method: _Optional[_Union[_method_pb2.Method, _Mapping]] = ..., method_of_batch: _Optional[_Union[MethodOfBatch, _Mapping]] = ...) -> None: ...

class MethodOfBatch(_message.Message):
    __slots__ = ("method", "facts")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    method: _method_pb2.Method
    facts: int
    def __init__(self, method: _Optional[_Union[_method_pb2.Method, _Mapping]] = ..., facts: _Optional[int] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("warnings",)
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class MergeSumsRequest(_message.Message):
    __slots__ = ("parts", "method", "request_id", "labels")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[_sums_pb2.PartialSums]
    method: _method_pb2.Method
    request_id: str
    labels: Labels
    def __init__(self, parts: _Optional[_Iterable[_Union[_sums_pb2.PartialSums, _Mapping]]] = ..., method: _Optional[_Union[_method_pb2.Method, _Mapping]] = ..., request_id: _Optional[str] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ...) -> None: ...

class MergeSumsResponse(_message.Message):
    __slots__ = ("sums", "answer", "counts", "counts_refusal")
    SUMS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_REFUSAL_FIELD_NUMBER: _ClassVar[int]
    sums: _sums_pb2.PartialSums
    answer: CorrectResponse
    counts: GlobalCounts
    counts_refusal: str
    def __init__(self, sums: _Optional[_Union[_sums_pb2.PartialSums, _Mapping]] = ..., answer: _Optional[_Union[CorrectResponse, _Mapping]] = ..., counts: _Optional[_Union[GlobalCounts, _Mapping]] = ..., counts_refusal: _Optional[str] = ...) -> None: ...

class DiagnoseRequest(_message.Message):
    __slots__ = ("request_id", "labels", "layout", "tensors", "group_ids", "version_spans", "audit", "shadows")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_SPANS_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    SHADOWS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    labels: Labels
    layout: _tensor_pb2.Layout
    tensors: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    group_ids: _containers.RepeatedScalarFieldContainer[int]
    version_spans: _containers.RepeatedCompositeFieldContainer[VersionSpan]
    audit: _diagnosis_pb2.Audit
    shadows: _containers.RepeatedCompositeFieldContainer[_method_pb2.Method]
    def __init__(self, request_id: _Optional[str] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., layout: _Optional[_Union[_tensor_pb2.Layout, _Mapping]] = ..., tensors: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., group_ids: _Optional[_Iterable[int]] = ..., version_spans: _Optional[_Iterable[_Union[VersionSpan, _Mapping]]] = ..., audit: _Optional[_Union[_diagnosis_pb2.Audit, _Mapping]] = ..., shadows: _Optional[_Iterable[_Union[_method_pb2.Method, _Mapping]]] = ...) -> None: ...

class DiagnoseResponse(_message.Message):
    __slots__ = ("request_id", "findings", "tokens", "examined_tokens", "examined_sequences", "warnings", "attribution", "audit", "shadows")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    EXAMINED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EXAMINED_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    SHADOWS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    findings: _containers.RepeatedCompositeFieldContainer[_diagnosis_pb2.Finding]
    tokens: int
    examined_tokens: int
    examined_sequences: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    attribution: _diagnosis_pb2.Attribution
    audit: _diagnosis_pb2.AuditSummary
    shadows: _containers.RepeatedCompositeFieldContainer[_diagnosis_pb2.Shadow]
    def __init__(self, request_id: _Optional[str] = ..., findings: _Optional[_Iterable[_Union[_diagnosis_pb2.Finding, _Mapping]]] = ..., tokens: _Optional[int] = ..., examined_tokens: _Optional[int] = ..., examined_sequences: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., attribution: _Optional[_Union[_diagnosis_pb2.Attribution, _Mapping]] = ..., audit: _Optional[_Union[_diagnosis_pb2.AuditSummary, _Mapping]] = ..., shadows: _Optional[_Iterable[_Union[_diagnosis_pb2.Shadow, _Mapping]]] = ...) -> None: ...

class ReportStepRequest(_message.Message):
    __slots__ = ("request_id", "labels", "tokens", "issued", "applied", "skipped_batches", "ratio_all_one", "num_reports")
    class SkippedBatchesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ISSUED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_BATCHES_FIELD_NUMBER: _ClassVar[int]
    RATIO_ALL_ONE_FIELD_NUMBER: _ClassVar[int]
    NUM_REPORTS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    labels: Labels
    tokens: int
    issued: _receipt_pb2.Receipt
    applied: _receipt_pb2.Receipt
    skipped_batches: _containers.ScalarMap[str, int]
    ratio_all_one: bool
    num_reports: int
    def __init__(self, request_id: _Optional[str] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., tokens: _Optional[int] = ..., issued: _Optional[_Union[_receipt_pb2.Receipt, _Mapping]] = ..., applied: _Optional[_Union[_receipt_pb2.Receipt, _Mapping]] = ..., skipped_batches: _Optional[_Mapping[str, int]] = ..., ratio_all_one: bool = ..., num_reports: _Optional[int] = ...) -> None: ...

class ReportStepResponse(_message.Message):
    __slots__ = ("state", "warnings")
    STATE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    state: _receipt_pb2.ReceiptState
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, state: _Optional[_Union[_receipt_pb2.ReceiptState, str]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class DeclareRunRequest(_message.Message):
    __slots__ = ("request_id", "labels", "method")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    labels: Labels
    method: _method_pb2.Method
    def __init__(self, request_id: _Optional[str] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., method: _Optional[_Union[_method_pb2.Method, _Mapping]] = ...) -> None: ...

class DeclareRunResponse(_message.Message):
    __slots__ = ("method", "warnings")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    method: str
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, method: _Optional[str] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ListMethodsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListMethodsResponse(_message.Message):
    __slots__ = ("methods",)
    METHODS_FIELD_NUMBER: _ClassVar[int]
    methods: _containers.RepeatedCompositeFieldContainer[_method_pb2.MethodInfo]
    def __init__(self, methods: _Optional[_Iterable[_Union[_method_pb2.MethodInfo, _Mapping]]] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("version", "revision", "numerics_version", "backend", "instruction_set", "threads", "devices", "limits", "dialects", "features", "shared_memory_socket", "dialect_releases")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_VERSION_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_SET_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    DIALECTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SHARED_MEMORY_SOCKET_FIELD_NUMBER: _ClassVar[int]
    DIALECT_RELEASES_FIELD_NUMBER: _ClassVar[int]
    version: str
    revision: str
    numerics_version: int
    backend: str
    instruction_set: str
    threads: int
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    limits: Limits
    dialects: _containers.RepeatedScalarFieldContainer[str]
    features: _containers.RepeatedScalarFieldContainer[str]
    shared_memory_socket: str
    dialect_releases: _containers.RepeatedCompositeFieldContainer[DialectReleases]
    def __init__(self, version: _Optional[str] = ..., revision: _Optional[str] = ..., numerics_version: _Optional[int] = ..., backend: _Optional[str] = ..., instruction_set: _Optional[str] = ..., threads: _Optional[int] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., dialects: _Optional[_Iterable[str]] = ..., features: _Optional[_Iterable[str]] = ..., shared_memory_socket: _Optional[str] = ..., dialect_releases: _Optional[_Iterable[_Union[DialectReleases, _Mapping]]] = ...) -> None: ...

class DialectReleases(_message.Message):
    __slots__ = ("system", "releases")
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    system: str
    releases: _containers.RepeatedCompositeFieldContainer[Release]
    def __init__(self, system: _Optional[str] = ..., releases: _Optional[_Iterable[_Union[Release, _Mapping]]] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("version", "change")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    version: str
    change: str
    def __init__(self, version: _Optional[str] = ..., change: _Optional[str] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("index", "name", "memory_bytes", "uuid")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    index: int
    name: str
    memory_bytes: int
    uuid: bytes
    def __init__(self, index: _Optional[int] = ..., name: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., uuid: _Optional[bytes] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_message_bytes", "max_tokens", "max_sequences", "max_rules", "max_chunk_bytes", "max_bytes_in_flight", "max_shared_memory_bytes")
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    MAX_RULES_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    MAX_SHARED_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_message_bytes: int
    max_tokens: int
    max_sequences: int
    max_rules: int
    max_chunk_bytes: int
    max_bytes_in_flight: int
    max_shared_memory_bytes: int
    def __init__(self, max_message_bytes: _Optional[int] = ..., max_tokens: _Optional[int] = ..., max_sequences: _Optional[int] = ..., max_rules: _Optional[int] = ..., max_chunk_bytes: _Optional[int] = ..., max_bytes_in_flight: _Optional[int] = ..., max_shared_memory_bytes: _Optional[int] = ...) -> None: ...
