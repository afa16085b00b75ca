"""Calls of ``correct`` that repeat an earlier one with other arrays.

The first calls of a kind go the whole way, which knows every type and finds every error. From the
second on the library has a plan of them; then only what may differ is read: shapes and addresses.
What is not plain goes the whole way again.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from counterweight_rl.arrays.batch import per_token
from counterweight_rl.arrays.encoding import MASK
from counterweight_rl.correction import Correction
from counterweight_rl.errors import InvalidRequestError
from counterweight_rl.local import library
from counterweight_rl.local.frozen import UnknownValueError, freeze
from counterweight_rl.local.plain_arrays import NumpyArrays, TorchTensors
from counterweight_rl.local.plan import Plan
from counterweight_rl.result import Result
from counterweight_rl.status import StatusCode

_ADVANTAGES = "advantages"
_ARRAYS = frozenset(
    {
        MASK,
        "rollout_log_probs",
        "old_log_probs",
        "current_log_probs",
        "ref_log_probs",
        _ADVANTAGES,
    }
)
# What a plan was made of. These are the same in each of its calls.
_FIXED = frozenset(
    {
        "method",
        "outputs",
        "run",
        "replica",
        "non_finite",
        "seed",
        "global_counts",
        "metrics",
        "timeout",
    }
)
# What each call has of its own.
_FREE = frozenset({"sequence_lengths", "padded_length", "policy_version", "request_id", "out"})
_INVALID_ARGUMENT = StatusCode.INVALID_ARGUMENT.value[0]
_MOST_PLANS = 64
_MOST_SEEN = 1024
_INT64_MAX = (1 << 63) - 1
_REQUEST_ID_BYTES = 128

Key = tuple[Any, ...]
Arrays = NumpyArrays | TorchTensors


class PreparedCalls:
    """The plans of one engine, by what they were prepared from; bounded. Thread-safe."""

    def __init__(self, functions: Any, handle: Any, failure: Callable[[], Exception]) -> None:
        """Prepares nothing yet; ``failure`` returns the error of this thread's last call."""
        self._functions = functions
        self._handle = handle
        self._failure = failure
        # Single operations of a dict are atomic.
        self._plans: dict[Key, tuple[Plan, list[bool]]] = {}
        self._seen: dict[Key, None] = {}
        self._numpy = NumpyArrays()
        self._torch: TorchTensors | None = None

    def key(self, call: Mapping[str, Any]) -> Key | None:
        """Returns what a call of ``correct`` has in common with others of its plan; None: none."""
        kind = self._kind_of(call.get(MASK))
        return None if kind is None else _key_of(call, kind)

    def has(self, key: Key | None) -> bool:
        """Returns whether there is a plan."""
        return key in self._plans

    def run(self, key: Key, call: Mapping[str, Any], stop: int) -> Result[Any] | None:
        """Answers a call by a plan; None: it has to go the whole way.

        Args:
            key: Its key.
            call: The arguments of ``correct``.
            stop: Address of an int32 that ends the call.

        Raises:
            CounterweightError: The call failed for another reason than its arguments.
        """
        kind = self._kind_of(call[MASK])
        found = self._plans.get(key)
        if kind is None or found is None:
            return None
        try:
            return self._answer(call, kind, *found, stop)
        except (TypeError, InvalidRequestError):
            return None  # refused once more, with the request's id

    def learn(
        self, key: Key, call: Mapping[str, Any], correction: Correction[Any], timeout: float | None
    ) -> None:
        """Makes a plan of an answered call if it is not the first of its kind."""
        if key not in self._seen:
            _keep(self._seen, key, None, _MOST_SEEN)
            return
        kind = self._kind_of(call[MASK])
        if kind is None:
            return
        try:
            plan = Plan(self._functions, self._handle, correction, timeout)
        except ValueError:
            return
        direct = [kind.is_direct(name, call[name]) for name in plan.inputs]
        _keep(self._plans, key, (plan, direct), _MOST_PLANS)

    def close(self) -> None:
        """Forgets the plans; runs under way keep theirs."""
        self._plans.clear()

    def _kind_of(self, mask: Any) -> Arrays | None:
        if type(mask) is np.ndarray:
            return self._numpy
        if self._torch is None:
            if not hasattr(sys.modules.get("torch"), "Tensor"):
                return None
            self._torch = TorchTensors()
        return self._torch if type(mask) in self._torch.types else None

    def _answer(
        self, call: Mapping[str, Any], kind: Arrays, plan: Plan, direct: list[bool], stop: int
    ) -> Result[Any] | None:
        mask = call[MASK]
        shape = mask.shape
        lengths = None
        padded_length = call.get("padded_length")
        if call.get("sequence_lengths") is not None:
            lengths = _lengths(call["sequence_lengths"])
            total = -1 if lengths is None else int(lengths.sum())
            # Advantages of a row each could be taken for those of tokens.
            if lengths is None or shape != (total,) or total == len(lengths):
                return None
            if padded_length is not None and not _is_count(padded_length):
                return None
            width = -1 if padded_length is None else padded_length
            layout = (len(lengths), lengths.ctypes.data, width)
        elif len(shape) == 2 and padded_length is None:
            layout = (shape[0], 0, shape[1])
        else:
            return None
        own_id = call.get("request_id")
        version = call.get("policy_version")
        if not (own_id is None or _is_id(own_id)) or not (version is None or _is_count(version)):
            return None
        kept = []
        inputs = []
        for name, is_direct in zip(plan.inputs, direct, strict=True):
            array = call[name]
            if array.shape != shape:
                if name == _ADVANTAGES:
                    array = per_token(array, mask, None if lengths is None else lengths.tolist())
                if array.shape != shape:
                    return None
            read = kind.read(name, array, is_direct)
            if read is None:
                return None
            kept.append(read[0])
            inputs.append(read[1])
        out = call.get("out") or {}
        arrays: dict[str, Any] = {}
        conversions = []
        outputs = []
        for name in plan.outputs:
            if name not in plan.wanted:
                outputs.append(0)
                continue
            own = (layout[0],) if name == "sequence_reasons" else shape
            given = out.get(name)
            if given is None:
                arrays[name], address, convert = kind.make(name, mask, own)
                if convert is not None:
                    conversions.append((name, convert))
            else:
                arrays[name] = given
                address = kind.take(name, given, mask, own)
                if address is None:
                    return None
            outputs.append(address)
        if len(out) and not arrays.keys() >= out.keys():
            return None
        numbers = plan.numbers()
        code = plan.run(layout, inputs, outputs, numbers, stop, (library.HOST, 0))
        if code == _INVALID_ARGUMENT:
            return None  # the whole way names the argument
        if code:
            raise self._failure()
        del kept
        for name, convert in conversions:
            arrays[name] = convert(arrays[name])
        for given in out.values():
            kind.wrote(given)
        return plan.result(numbers, arrays, own_id)


def _key_of(call: Mapping[str, Any], kind: Arrays) -> Key | None:
    """Returns what calls of one plan have in common; None: the call has no plan."""
    parts: list[Any] = []
    for name, value in call.items():
        if name in _ARRAYS:
            if value is None:
                continue
            if type(value) not in kind.types:
                return None
            parts.append((name, type(value), value.dtype))
        elif name in _FIXED:
            if name == "method" and type(value) is str:
                parts.append((name, value))
                continue
            try:
                parts.append((name, freeze(value)))
            except (UnknownValueError, TypeError, ValueError):
                return None
        elif name in _FREE:
            parts.append((name, value is None))
        elif value is not None:
            return None
    return tuple(parts)


def _lengths(values: Any) -> Any:
    """Returns sequence lengths as int64, contiguous; None: they are not plain."""
    if type(values) in (list, tuple):
        if {*map(type, values)} != {int}:
            return None
        try:
            return np.array(values, np.int64)
        except OverflowError:
            return None
    if hasattr(values, "is_cpu"):  # torch
        if not values.is_cpu or values.ndim != 1 or values.is_floating_point():
            return None
        values = values.detach().numpy()
    if type(values) is not np.ndarray or values.ndim != 1 or values.dtype.kind != "i":
        return None
    return np.ascontiguousarray(values, np.int64)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _INT64_MAX


def _is_id(value: Any) -> bool:
    return (
        type(value) is str
        and 0 < len(value) <= _REQUEST_ID_BYTES
        and value.isascii()
        and value.isprintable()
    )


def _keep(kept: dict[Key, Any], key: Key, value: Any, most: int) -> None:
    """Keeps the newest entries."""
    kept[key] = value
    while len(kept) > most:
        try:
            del kept[next(iter(kept))]
        except (KeyError, RuntimeError, StopIteration):  # another thread did
            return
