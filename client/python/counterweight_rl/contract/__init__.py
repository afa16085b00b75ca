"""The contract's messages: protobuf's if it is installed, else those of ``contract.lite``."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "DecodeError",
    "Message",
    "correction_service_pb2",
    "method_pb2",
    "struct_pb2",
    "tensor_pb2",
]

if TYPE_CHECKING:
    from google.protobuf import struct_pb2
    from google.protobuf.message import DecodeError, Message

    from counterweight_rl._gen.counterweight.v1 import (
        correction_service_pb2,
        method_pb2,
        tensor_pb2,
    )
else:
    try:
        from google.protobuf import struct_pb2
        from google.protobuf.message import DecodeError, Message

        from counterweight_rl._gen.counterweight.v1 import (
            correction_service_pb2,
            method_pb2,
            tensor_pb2,
        )
    except ImportError:
        from counterweight_rl.contract import lite
        from counterweight_rl.contract.lite import DecodeError, Message

        correction_service_pb2 = method_pb2 = struct_pb2 = tensor_pb2 = lite.namespace
