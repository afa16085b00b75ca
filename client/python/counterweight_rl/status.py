"""gRPC's status codes: those of grpcio if it is installed, else equal ones."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

__all__ = ["CODES", "StatusCode"]

if TYPE_CHECKING:
    from grpc import StatusCode
else:
    try:
        from grpc import StatusCode
    except ImportError:

        class StatusCode(enum.Enum):
            """https://grpc.io/docs/guides/status-codes/ with grpcio's names and values."""

            OK = (0, "ok")
            CANCELLED = (1, "cancelled")
            UNKNOWN = (2, "unknown")
            INVALID_ARGUMENT = (3, "invalid argument")
            DEADLINE_EXCEEDED = (4, "deadline exceeded")
            NOT_FOUND = (5, "not found")
            ALREADY_EXISTS = (6, "already exists")
            PERMISSION_DENIED = (7, "permission denied")
            RESOURCE_EXHAUSTED = (8, "resource exhausted")
            FAILED_PRECONDITION = (9, "failed precondition")
            ABORTED = (10, "aborted")
            OUT_OF_RANGE = (11, "out of range")
            UNIMPLEMENTED = (12, "unimplemented")
            INTERNAL = (13, "internal")
            UNAVAILABLE = (14, "unavailable")
            DATA_LOSS = (15, "data loss")
            UNAUTHENTICATED = (16, "unauthenticated")


CODES = {code.value[0]: code for code in StatusCode}
"""The codes by number."""
