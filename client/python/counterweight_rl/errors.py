"""The exceptions of this package; they survive pickling between a trainer's processes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterweight_rl import translation
from counterweight_rl.contract.wire_format import fields as read_fields
from counterweight_rl.contract.wire_format import last_string, split
from counterweight_rl.status import StatusCode

if TYPE_CHECKING:
    import grpc


@dataclass(frozen=True)
class Violation:
    """One argument that is wrong.

    Attributes:
        field: The argument, and its part: "old_log_probs", "run", "method.policy_loss.clip_low",
            "method.block.rollout_is_threshold".
        description: The problem, and the accepted values.
        path: The server's path of the field, as in proto/README.md
            ("method.dialect.block.rollout_is_threshold"). None for violations that the client
            itself finds.
    """

    field: str
    description: str
    path: str | None = None


class CopyWarning(UserWarning):
    """CUDA tensors are copied through the host although the server computes on their device."""


class CounterweightError(Exception):
    """A failed call: the base of this package's errors, and the error for other codes.

    Attributes:
        code: The gRPC status code.
        request_id: The call's request_id, or None for calls without one. Pass it again when
            retrying, so that drift metrics count the batch once.
    """

    def __init__(
        self,
        message: str,
        *,
        code: StatusCode = StatusCode.UNKNOWN,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.request_id = request_id


class InvalidRequestError(CounterweightError, ValueError):
    """The request is invalid, and a retry does not help: INVALID_ARGUMENT.

    It is a ValueError too, for code that expects one for a wrong setting.

    Attributes:
        violations: Every field that is wrong (the server lists at most 16).
    """

    def __init__(
        self,
        message: str,
        *,
        violations: Iterable[Violation] = (),
        code: StatusCode = StatusCode.INVALID_ARGUMENT,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, code=code, request_id=request_id)
        self.violations: list[Violation] = list(violations)

    def __str__(self) -> str:
        message = super().__str__()
        lines = [f"{v.field}: {v.description}" for v in self.violations]
        return "\n  ".join([message, *(line for line in lines if line not in message)])


class InvalidTypeError(InvalidRequestError, TypeError):
    """The same for functions of ``compat`` with an original that raises a TypeError."""


class OverloadedError(CounterweightError):
    """The server has no room, or the request exceeds a limit: RESOURCE_EXHAUSTED.

    Attributes:
        retry_after: Seconds to wait before a retry. None: the server named none; a request beyond a
            limit has none, because waiting does not help. Infinite: the server forbids retries.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        code: StatusCode = StatusCode.RESOURCE_EXHAUSTED,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, code=code, request_id=request_id)
        self.retry_after = retry_after


class UnavailableError(CounterweightError):
    """No server answers, or it is draining: UNAVAILABLE. Retrying, perhaps elsewhere, is safe.

    ``code`` may be CANCELLED: gRPC servers end calls with it that arrive during a shutdown and that
    they have not read.

    Attributes:
        retry_after: Seconds to wait before a retry. None: the server named none. Infinite: the
            server forbids retries.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        code: StatusCode = StatusCode.UNAVAILABLE,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, code=code, request_id=request_id)
        self.retry_after = retry_after


class DeadlineError(CounterweightError):
    """The answer did not arrive within the timeout: DEADLINE_EXCEEDED."""


_NOTHING = translation.Sent()


def refuse(violations: Sequence[Violation], request_id: str | None = None) -> InvalidRequestError:
    """Returns the error for a request that the wire cannot express."""
    fields = ", ".join(v.field for v in violations)
    return InvalidRequestError(
        f"invalid request: {fields}", violations=violations, request_id=request_id
    )


def from_rpc_error(
    error: grpc.RpcError,
    request_id: str | None = None,
    *,
    closed: bool = False,
    sent: translation.Sent = _NOTHING,
) -> CounterweightError:
    """Converts grpc's error to a typed one that speaks of the client's arguments.

    Args:
        error: The exception of grpc.
        request_id: The request's.
        closed: Whether the client was closed meanwhile.
        sent: The request's tensors and outputs, which the server names by index.
    """
    code = error.code()
    message = error.details() or code.name
    # Iterates over pairs: grpc.aio's metadata have keys() too, which dict() cannot use.
    metadata = dict(iter(error.trailing_metadata() or ()))
    fields, retry_after = _read_details(metadata.get("grpc-status-details-bin", b""))
    if "grpc-retry-pushback-ms" in metadata:
        retry_after = max(retry_after or 0.0, _read_pushback(metadata["grpc-retry-pushback-ms"]))
    return from_code(
        code,
        message,
        fields,
        retry_after=retry_after,
        request_id=request_id,
        closed=closed,
        sent=sent,
    )


def from_code(
    code: StatusCode,
    message: str,
    fields: Sequence[tuple[str, str]] = (),
    *,
    retry_after: float | None = None,
    request_id: str | None = None,
    closed: bool = False,
    sent: translation.Sent = _NOTHING,
) -> CounterweightError:
    """The typed form of a status, in the words of the client's arguments.

    Args:
        code: The status code.
        message: In the words of the contract.
        fields: Of an INVALID_ARGUMENT, each wrong field and what is wrong.
        retry_after: Seconds; None: not known.
        request_id: The request's.
        closed: The client was closed meanwhile.
        sent: The request's tensors and outputs, which ``fields`` name by numbers.
    """
    if code is StatusCode.INVALID_ARGUMENT:
        return _invalid(message, fields, sent, request_id)
    if code is StatusCode.RESOURCE_EXHAUSTED:
        message = translation.refusal(message)
        return OverloadedError(message, retry_after=retry_after, request_id=request_id)
    cancelled_by_server = code is StatusCode.CANCELLED and not closed
    if code is StatusCode.UNAVAILABLE or cancelled_by_server:
        return UnavailableError(message, retry_after=retry_after, code=code, request_id=request_id)
    if code is StatusCode.DEADLINE_EXCEEDED:
        return DeadlineError(translation.refusal(message), code=code, request_id=request_id)
    return CounterweightError(message, code=code, request_id=request_id)


def _invalid(
    message: str, fields: Sequence[tuple[str, str]], sent: translation.Sent, request_id: str | None
) -> InvalidRequestError:
    violations = [
        Violation(translation.argument(path, sent), translation.description(text, path), path)
        for path, text in fields
    ]
    if fields:
        told = [f"{v.field}: {v.description}" for v in violations]
        message = translation.headline(message, fields[0][0], told)
    return InvalidRequestError(message, violations=violations, request_id=request_id)


def client_closed(request_id: str | None) -> CounterweightError:
    """Returns the error of calls on a closed client, also of those in flight when it closed."""
    return CounterweightError(
        "the client is closed", code=StatusCode.CANCELLED, request_id=request_id
    )


def _read_pushback(text: str | bytes) -> float:
    """Returns seconds; per gRPC's retry design, anything but a number >= 0 forbids retries."""
    digits = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    return int(digits) / 1000 if digits.isascii() and digits.isdigit() else math.inf


# Field numbers of google/rpc/status.proto and google/rpc/error_details.proto. Generated code would
# fail at import beside googleapis-common-protos, which defines the same messages.
_STATUS_DETAILS = 3
_BAD_REQUEST_FIELD_VIOLATIONS = 1
_FIELD_VIOLATION_FIELD = 1
_FIELD_VIOLATION_DESCRIPTION = 2
_RETRY_INFO_RETRY_DELAY = 1
# Field numbers of google/protobuf/any.proto and duration.proto.
_ANY_TYPE_URL = 1
_ANY_VALUE = 2
_DURATION_SECONDS = 1
_DURATION_NANOS = 2


def read_bad_request(message: memoryview) -> list[tuple[str, str]]:
    """The fields of a google.rpc.BadRequest with their descriptions.

    Raises:
        ValueError: It is none.
    """
    return [
        (
            last_string(violation, _FIELD_VIOLATION_FIELD),
            last_string(violation, _FIELD_VIOLATION_DESCRIPTION),
        )
        for violation in split(message, _BAD_REQUEST_FIELD_VIOLATIONS)[1]
    ]


def _read_details(status: bytes) -> tuple[list[tuple[str, str]], float | None]:
    """Returns BadRequest's fields with descriptions, and RetryInfo's delay in seconds.

    Both are from a google.rpc.Status. Details are optional: unreadable ones are skipped, so that a
    parsing error never hides the status code.
    """
    fields: list[tuple[str, str]] = []
    retry_after = None
    try:
        for detail in split(memoryview(status), _STATUS_DETAILS)[1]:
            name = last_string(detail, _ANY_TYPE_URL).rpartition("/")[2]
            values = split(detail, _ANY_VALUE)[1]
            value = values[-1] if values else memoryview(b"")
            if name == "google.rpc.BadRequest":
                fields += read_bad_request(value)
            elif name == "google.rpc.RetryInfo":
                for delay in split(value, _RETRY_INFO_RETRY_DELAY)[1]:
                    retry_after = max(0.0, _read_seconds(delay))
    except ValueError:
        pass
    return fields, retry_after


def _read_seconds(duration: memoryview) -> float:
    """Returns the seconds of a google.protobuf.Duration."""
    # Negative numbers are their two's complement in 64 bits.
    numbers = {
        found.tag >> 3: found.value - (found.value >> 63 << 64) for found in read_fields(duration)
    }
    return numbers.get(_DURATION_SECONDS, 0) + numbers.get(_DURATION_NANOS, 0) / 1e9
