"""Reads what calls of ``correct`` have in common, and what may differ: shapes, addresses, ids.

The functions return None for whatever needs a judgement; the whole way reads or refuses it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

import numpy as np

from counterweight_rl.arrays import cuda
from counterweight_rl.arrays.batch import per_token
from counterweight_rl.arrays.encoding import MASK
from counterweight_rl.local.cuda_tensors import CudaTensors
from counterweight_rl.local.frozen import UnknownValueError, freeze
from counterweight_rl.local.plain_arrays import NumpyArrays, TorchTensors

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
        "partial_sums",
        "omit_loss",
        "timeout",
    }
)
# Arguments that each call of a plan has of its own.
_FREE = frozenset(
    {"sequence_lengths", "padded_length", "policy_version", "step", "request_id", "out"}
)
_INT64_MAX = (1 << 63) - 1
_REQUEST_ID_BYTES = 128

Key = tuple[Any, ...]
Arrays = NumpyArrays | TorchTensors  # CudaTensors are some of these
ValueT = TypeVar("ValueT")


class Kinds:
    """The kinds of arrays. Thread-safe."""

    def __init__(self, device: int | None = None) -> None:
        """Knows numpy's, torch's as soon as there is one, and torch's on that CUDA device."""
        self._numpy = NumpyArrays()
        self._torch: TorchTensors | None = None
        self._device = device
        self._on_device: CudaTensors | None = None

    def of(self, mask: Any) -> Arrays | None:
        """Returns the kind of a plain array; None: it is none."""
        if type(mask) is np.ndarray:
            return self._numpy
        if self._torch is None:
            if not hasattr(sys.modules.get("torch"), "Tensor"):
                return None
            self._torch = TorchTensors()
        if type(mask) not in self._torch.types:
            return None
        if not cuda.is_on_device(mask):
            return self._torch
        device = cuda.device_of(mask)
        # torch counts devices as CUDA does.
        if self._device is None or device.index != self._device:
            return None
        if self._on_device is None:
            self._on_device = CudaTensors(device)
        return self._on_device


class Known(NamedTuple):
    """The common part of a plan's calls, and where the arrays of one are.

    Attributes:
        key: The common part.
        arrays: Their kind.
        stream: torch's stream in which tensors on a device are complete; None: arrays of the host.
    """

    key: Key
    arrays: Arrays
    stream: Any

    def on_stream(self) -> AbstractContextManager[None]:
        """Runs the work on tensors inside on the caller's stream, in another thread than his."""
        return nullcontext() if self.stream is None else cuda.on_stream(self.stream)


class Layout(NamedTuple):
    """The shape of one batch.

    Attributes:
        shape: Rows, the address of their lengths or 0, and cw_batch.length.
        lengths: int64, of a packed batch.
        of_tokens: The shape of arrays with an element for each position.
    """

    shape: tuple[int, int, int]
    lengths: Any
    of_tokens: tuple[int, ...]

    def of(self, output: str) -> tuple[int, ...]:
        """Returns the shape of an output."""
        return self.shape[:1] if output == "sequence_reasons" else self.of_tokens


def read_layout(call: Mapping[str, Any], of_mask: tuple[int, ...]) -> Layout | None:
    """Returns the shape of a call."""
    padded_length = call.get("padded_length")
    given = call.get("sequence_lengths")
    if given is None:
        if len(of_mask) != 2 or padded_length is not None:
            return None
        return Layout((of_mask[0], 0, of_mask[1]), None, of_mask)
    lengths = _lengths(given)
    if lengths is None or not (padded_length is None or _is_count(padded_length)):
        return None
    total = int(lengths.sum())
    # Advantages of each row could be taken for those of each token.
    if of_mask != (total,) or total == len(lengths):
        return None
    width = -1 if padded_length is None else padded_length
    return Layout((len(lengths), lengths.ctypes.data, width), lengths, of_mask)


def read_inputs(
    call: Mapping[str, Any],
    kind: Arrays,
    names: list[str],
    direct: list[bool],
    layout: Layout,
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


def has_plain_settings(call: Mapping[str, Any]) -> bool:
    """Returns whether a call's id, version and container of destinations need no judgement."""
    own_id, out = call.get("request_id"), call.get("out")
    counts = (call.get("policy_version"), call.get("step"))
    return (
        (own_id is None or _is_id(own_id))
        and all(count is None or _is_count(count) for count in counts)
        and (out is None or type(out) is dict)
    )


def copy_arrays(call: Mapping[str, Any], kind: Arrays) -> dict[str, Any] | None:
    """Returns a call of ``correct`` that the caller's later changes do not reach, but of ``out``.

    None: an array is not plain.
    """
    copied = dict(call)
    for name, value in call.items():
        if name in _ARRAYS and value is not None:
            copied[name] = kind.copy(name, value)
            if copied[name] is None:
                return None
    for name in ("method", "outputs", "sequence_lengths", "global_counts"):
        if name in copied:
            copied[name] = copy.deepcopy(copied[name])
    if copied.get("out") is not None:
        copied["out"] = dict(copied["out"])
    return copied


def key_of(call: Mapping[str, Any], kind: Arrays) -> Key | None:
    """Returns what calls of one plan have in common; None: the call has no plan."""
    parts: list[Any] = [kind.device]
    for name, value in call.items():
        if name in _ARRAYS:
            if value is None:
                continue
            # Some nested tensors raise errors for their shape.
            if type(value) not in kind.types or getattr(value, "is_nested", False):
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
        on_host = values.is_cpu or values.is_cuda
        if not on_host or values.ndim != 1 or values.is_floating_point():
            return None
        values = values.detach().cpu().numpy()
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


def keep(kept: dict[Key, ValueT], key: Key, value: ValueT, most: int) -> None:
    """Keeps the newest entries."""
    kept[key] = value
    while len(kept) > most:
        try:
            del kept[next(iter(kept))]
        except (KeyError, RuntimeError, StopIteration):  # another thread did
            return
