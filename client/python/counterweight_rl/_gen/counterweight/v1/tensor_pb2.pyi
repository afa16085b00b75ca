from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TensorRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TENSOR_ROLE_UNSPECIFIED: _ClassVar[TensorRole]
    TENSOR_ROLE_ROLLOUT_LOG_PROBS: _ClassVar[TensorRole]
    TENSOR_ROLE_OLD_LOG_PROBS: _ClassVar[TensorRole]
    TENSOR_ROLE_CURRENT_LOG_PROBS: _ClassVar[TensorRole]
    TENSOR_ROLE_REF_LOG_PROBS: _ClassVar[TensorRole]
    TENSOR_ROLE_RESPONSE_MASK: _ClassVar[TensorRole]
    TENSOR_ROLE_ADVANTAGES: _ClassVar[TensorRole]
    TENSOR_ROLE_ENTROPIES: _ClassVar[TensorRole]
    TENSOR_ROLE_REWARDS: _ClassVar[TensorRole]
    TENSOR_ROLE_TEACHER_LOG_PROBS: _ClassVar[TensorRole]
    TENSOR_ROLE_POLICY_VERSIONS: _ClassVar[TensorRole]
    TENSOR_ROLE_WEIGHTS: _ClassVar[TensorRole]
    TENSOR_ROLE_KEEP_MASK: _ClassVar[TensorRole]
    TENSOR_ROLE_TOKEN_REASONS: _ClassVar[TensorRole]
    TENSOR_ROLE_SEQUENCE_REASONS: _ClassVar[TensorRole]
    TENSOR_ROLE_GRADIENT: _ClassVar[TensorRole]

class DType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    D_TYPE_UNSPECIFIED: _ClassVar[DType]
    D_TYPE_F32: _ClassVar[DType]
    D_TYPE_BF16: _ClassVar[DType]
    D_TYPE_F16: _ClassVar[DType]
    D_TYPE_U8: _ClassVar[DType]
    D_TYPE_U16: _ClassVar[DType]
    D_TYPE_I32: _ClassVar[DType]

class NonFinitePolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NON_FINITE_POLICY_UNSPECIFIED: _ClassVar[NonFinitePolicy]
    NON_FINITE_POLICY_REJECT: _ClassVar[NonFinitePolicy]
    NON_FINITE_POLICY_DROP: _ClassVar[NonFinitePolicy]
    NON_FINITE_POLICY_NEUTRALIZE: _ClassVar[NonFinitePolicy]
TENSOR_ROLE_UNSPECIFIED: TensorRole
TENSOR_ROLE_ROLLOUT_LOG_PROBS: TensorRole
TENSOR_ROLE_OLD_LOG_PROBS: TensorRole
TENSOR_ROLE_CURRENT_LOG_PROBS: TensorRole
TENSOR_ROLE_REF_LOG_PROBS: TensorRole
TENSOR_ROLE_RESPONSE_MASK: TensorRole
TENSOR_ROLE_ADVANTAGES: TensorRole
TENSOR_ROLE_ENTROPIES: TensorRole
TENSOR_ROLE_REWARDS: TensorRole
TENSOR_ROLE_TEACHER_LOG_PROBS: TensorRole
TENSOR_ROLE_POLICY_VERSIONS: TensorRole
TENSOR_ROLE_WEIGHTS: TensorRole
TENSOR_ROLE_KEEP_MASK: TensorRole
TENSOR_ROLE_TOKEN_REASONS: TensorRole
TENSOR_ROLE_SEQUENCE_REASONS: TensorRole
TENSOR_ROLE_GRADIENT: TensorRole
D_TYPE_UNSPECIFIED: DType
D_TYPE_F32: DType
D_TYPE_BF16: DType
D_TYPE_F16: DType
D_TYPE_U8: DType
D_TYPE_U16: DType
D_TYPE_I32: DType
NON_FINITE_POLICY_UNSPECIFIED: NonFinitePolicy
NON_FINITE_POLICY_REJECT: NonFinitePolicy
NON_FINITE_POLICY_DROP: NonFinitePolicy
NON_FINITE_POLICY_NEUTRALIZE: NonFinitePolicy

class Layout(_message.Message):
    __slots__ = ("padded", "packed")
    PADDED_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    padded: PaddedLayout
    packed: PackedLayout
    def __init__(self, padded: _Optional[_Union[PaddedLayout, _Mapping]] = ..., packed: _Optional[_Union[PackedLayout, _Mapping]] = ...) -> None: ...

class PaddedLayout(_message.Message):
    __slots__ = ("num_sequences", "length")
    NUM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    num_sequences: int
    length: int
    def __init__(self, num_sequences: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class PackedLayout(_message.Message):
    __slots__ = ("sequence_lengths", "padded_length")
    SEQUENCE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    PADDED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    sequence_lengths: _containers.RepeatedScalarFieldContainer[int]
    padded_length: int
    def __init__(self, sequence_lengths: _Optional[_Iterable[int]] = ..., padded_length: _Optional[int] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("role", "dtype", "data", "shared_memory")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    role: TensorRole
    dtype: DType
    data: bytes
    shared_memory: SharedMemoryRange
    def __init__(self, role: _Optional[_Union[TensorRole, str]] = ..., dtype: _Optional[_Union[DType, str]] = ..., data: _Optional[bytes] = ..., shared_memory: _Optional[_Union[SharedMemoryRange, _Mapping]] = ...) -> None: ...

class SharedMemoryRange(_message.Message):
    __slots__ = ("handle", "offset", "length")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    handle: bytes
    offset: int
    length: int
    def __init__(self, handle: _Optional[bytes] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...
