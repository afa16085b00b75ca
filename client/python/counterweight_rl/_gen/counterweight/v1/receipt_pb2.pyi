from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ReceiptState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECEIPT_STATE_UNSPECIFIED: _ClassVar[ReceiptState]
    RECEIPT_STATE_USED: _ClassVar[ReceiptState]
    RECEIPT_STATE_UNUSED: _ClassVar[ReceiptState]
    RECEIPT_STATE_ROUNDED: _ClassVar[ReceiptState]
    RECEIPT_STATE_REPLACED: _ClassVar[ReceiptState]
RECEIPT_STATE_UNSPECIFIED: ReceiptState
RECEIPT_STATE_USED: ReceiptState
RECEIPT_STATE_UNUSED: ReceiptState
RECEIPT_STATE_ROUNDED: ReceiptState
RECEIPT_STATE_REPLACED: ReceiptState

class Receipt(_message.Message):
    __slots__ = ("fingerprint", "tokens", "changed_tokens", "dropped_tokens", "weight_excess")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_EXCESS_FIELD_NUMBER: _ClassVar[int]
    fingerprint: int
    tokens: int
    changed_tokens: int
    dropped_tokens: int
    weight_excess: float
    def __init__(self, fingerprint: _Optional[int] = ..., tokens: _Optional[int] = ..., changed_tokens: _Optional[int] = ..., dropped_tokens: _Optional[int] = ..., weight_excess: _Optional[float] = ...) -> None: ...
