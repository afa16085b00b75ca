from ...counterweight.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_NOTE: _ClassVar[Severity]
    SEVERITY_WARNING: _ClassVar[Severity]
    SEVERITY_ERROR: _ClassVar[Severity]
SEVERITY_UNSPECIFIED: Severity
SEVERITY_NOTE: Severity
SEVERITY_WARNING: Severity
SEVERITY_ERROR: Severity

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
