"""Calls of ``correct`` that repeat an earlier one with other arrays.

The first calls of a kind go the whole way, which knows every type and finds every error. From the
second on the library has a plan of them; then only what may differ is read: shapes and addresses.
What is not plain goes the whole way again.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from counterweight_rl.arrays.batch import per_token
from counterweight_rl.arrays.encoding import MASK
from counterweight_rl.arrays.torch_kinds import unreadable
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
# Arguments that a plan was made of; the same in each of its calls.
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
# Arguments that each call of a plan has of its own.
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
        own_id, version = call.get("request_id"), call.get("policy_version")
        layout = _layout(call, mask.shape)
        if (
            layout is None
            or not (own_id is None or _is_id(own_id))
            or not (version is None or _is_count(version))
        ):
            return None
        kept: list[Any] = []  # copies that the library reads
        inputs = _inputs(call, kind, plan.inputs, direct, layout, kept)
        outputs = None if inputs is None else _Outputs.make(call, kind, plan, layout)
        if inputs is None or outputs is None:
            return None
        numbers = plan.numbers()
        code = plan.run(layout.shape, inputs, outputs.places, numbers, stop, (library.HOST, 0))
        if code == _INVALID_ARGUMENT:
            return None  # the whole way names the argument
        if code:
            raise self._failure()
        return plan.result(numbers, outputs.finish(kind), own_id)


class _Layout(NamedTuple):
    """The shape of one batch.

    Attributes:
        shape: Rows, the address of their lengths or 0, and cw_batch.length.
        lengths: int64, of a packed batch.
        of_tokens: The shape of arrays with an element for each position.
    """

    shape: tuple[int, int, int]
    lengths: Any
    of_tokens: tuple[int, ...]


def _layout(call: Mapping[str, Any], of_mask: tuple[int, ...]) -> _Layout | None:
    padded_length = call.get("padded_length")
    given = call.get("sequence_lengths")
    if given is None:
        if len(of_mask) != 2 or padded_length is not None:
            return None
        return _Layout((of_mask[0], 0, of_mask[1]), None, of_mask)
    lengths = _lengths(given)
    if lengths is None or not (padded_length is None or _is_count(padded_length)):
        return None
    total = int(lengths.sum())
    # Advantages of each row could be taken for those of each token.
    if of_mask != (total,) or total == len(lengths):
        return None
    width = -1 if padded_length is None else padded_length
    return _Layout((len(lengths), lengths.ctypes.data, width), lengths, of_mask)


def _inputs(
    call: Mapping[str, Any],
    kind: Arrays,
    names: list[str],
    direct: list[bool],
    layout: _Layout,
    kept: list[Any],
) -> list[int] | None:
    """Returns the address of each input; appends what owns the memory."""
    addresses = []
    for name, is_direct in zip(names, direct, strict=True):
        array = call[name]
        if array.shape != layout.of_tokens:
            if name == _ADVANTAGES:
                lengths = None if layout.lengths is None else layout.lengths.tolist()
                array = per_token(array, call[MASK], lengths)
            if array.shape != layout.of_tokens:
                return None
        read = kind.read(name, array, is_direct)
        if read is None:
            return None
        kept.append(read[0])
        addresses.append(read[1])
    return addresses


@dataclass
class _Outputs:
    """Memory for the outputs of one run.

    Attributes:
        places: The address of each output of the plan; 0: not wanted.
        arrays: The memory by name.
        conversions: By name, how the output is made of its memory.
        given: The caller's destinations.
    """

    places: list[int]
    arrays: dict[str, Any]
    conversions: dict[str, Callable[[Any], Any]]
    given: Mapping[str, Any]

    @classmethod
    def make(
        cls, call: Mapping[str, Any], kind: Arrays, plan: Plan, layout: _Layout
    ) -> _Outputs | None:
        """Makes them, but those that the caller gave; None: one of these is not plain."""
        mask, given = call[MASK], call.get("out") or {}
        made = cls([], {}, {}, given)
        for name in plan.outputs:
            if name not in plan.wanted:
                made.places.append(0)
                continue
            shape = layout.shape[:1] if name == "sequence_reasons" else layout.of_tokens
            place: int | None
            if given and name in given:
                array, place = given[name], kind.take(name, given[name], mask, shape)
                if place is None:
                    return None
            else:
                array, place, conversion = kind.make(name, mask, shape)
                if conversion is not None:
                    made.conversions[name] = conversion
            made.arrays[name] = array
            made.places.append(place)
        return made if not given or made.arrays.keys() >= given.keys() else None

    def finish(self, kind: Arrays) -> dict[str, Any]:
        """Returns the outputs after a run."""
        for name, conversion in self.conversions.items():
            self.arrays[name] = conversion(self.arrays[name])
        for array in self.given.values():
            kind.wrote(array)
        return self.arrays


def copy_arrays(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns a call of ``correct`` that the caller's later changes do not reach, but of ``out``.

    None: an array is not plain.
    """
    copied = dict(call)
    for name, value in call.items():
        if name in _ARRAYS and value is not None:
            if type(value) is np.ndarray:
                copied[name] = value.copy()
            elif value.is_cpu and unreadable(name, value) is None and not value.is_nested:
                copied[name] = value.detach().clone()
            else:
                return None
    for name in ("method", "outputs", "sequence_lengths", "global_counts"):
        if name in copied:
            copied[name] = copy.deepcopy(copied[name])
    if copied.get("out") is not None:
        copied["out"] = dict(copied["out"])
    return copied


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
