"""Messages as the library's JSON, https://protobuf.dev/programming-guides/json."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from counterweight_rl.arrays.wire import AnswerTensor
from counterweight_rl.contract.tensors import DTYPE_PREFIX, ROLE_PREFIX, DType, TensorRole
from counterweight_rl.messages import Message


def dump(request: Message) -> bytes:
    """Returns the text of a request."""
    try:
        return _dump(request)
    except ValueError:
        pass  # it has a number that JSON lacks
    method = request.get("method", {})
    if "dialect" in method:
        # Texts in a block stay texts, so that such a number has a form of the library's own there.
        block = _spelled(method["dialect"]["block"], lambda name: {"$numberDouble": name})
        request = {**request, "method": {"dialect": {**method["dialect"], "block": block}}}
    return _dump(_spelled(request, str))


def load(text: bytes) -> Message:
    """Reads the text of an answer."""
    message: Message = json.loads(text, parse_int=_integer)
    return message


def tensors_of(answer: Message) -> list[AnswerTensor]:
    """Returns an answer's tensors without their bytes."""
    return [
        AnswerTensor(
            TensorRole[tensor["role"].removeprefix(ROLE_PREFIX)],
            DType[tensor["dtype"].removeprefix(DTYPE_PREFIX)],
            memoryview(b""),
        )
        for tensor in answer.get("tensors", ())
    ]


def violations_of(text: bytes) -> list[tuple[str, str]]:
    """Returns the fields of a google.rpc.BadRequest with their descriptions."""
    listed = load(text).get("fieldViolations", ()) if text else ()
    return [(each.get("field", ""), each.get("description", "")) for each in listed]


def _dump(request: Message) -> bytes:
    return json.dumps(request, ensure_ascii=False, allow_nan=False).encode()


def _spelled(value: Any, spell: Callable[[str], Any]) -> Any:
    """Returns a copy in which ``spell`` has replaced the numbers that JSON lacks."""
    if isinstance(value, dict):
        return {key: _spelled(item, spell) for key, item in value.items()}
    if isinstance(value, list):
        return [_spelled(item, spell) for item in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return spell("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")


def _integer(digits: str) -> float:
    # The library writes the float -0.0 so.
    return -0.0 if digits == "-0" else int(digits)
