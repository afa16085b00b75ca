"""Copies of what a call of ``correct`` was given."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from counterweight_rl import messages
from counterweight_rl.arguments import int_list
from counterweight_rl.arrays.batch import Batch, read_batch, role_name
from counterweight_rl.arrays.version_spans import read_spans
from counterweight_rl.config import Dialect, Method, Preset
from counterweight_rl.contract.tensors import DType

Array = npt.NDArray[Any]

ROLLOUT, OLD, CURRENT = "rollout_log_probs", "old_log_probs", "current_log_probs"
MASK, VERSIONS, GROUPS = "response_mask", "policy_versions", "group_ids"
_NUMPY = {DType.F32: "<f4", DType.F16: "<f2", DType.BF16: "<u2", DType.U8: "u1", DType.I32: "<i4"}
_LABELS = ("run", "replica", "step", "policy_version")


@dataclass(frozen=True)
class Rows:
    """The sequences of one call, in memory of their own.

    Attributes:
        arrays: One-dimensional arrays by column, a sequence after the other.
        lengths: Positions of each sequence.
        labels: Numbers and texts of the whole call by column.
        num_bytes: Size of the arrays.
    """

    arrays: Mapping[str, Array]
    lengths: Array
    labels: Mapping[str, Any]
    num_bytes: int

    @property
    def kind(self) -> tuple[str, ...]:
        """The columns that files of such rows have and others lack."""
        return tuple(self.arrays)


def is_recorded(call: Mapping[str, Any]) -> bool:
    """Whether a call shows rows that no other call of its step has shown.

    Calls without metrics repeat rows, and so does ``Step.finish``.
    """
    if call.get("metrics") is False:
        return False
    return not (call.get("partial_sums") and call.get("global_counts") is not None)


def sequences(call: Mapping[str, Any]) -> int:
    """Returns the rows of a call that succeeded."""
    lengths = call.get("sequence_lengths")
    return len(call["response_mask"] if lengths is None else lengths)


def size(call: Mapping[str, Any]) -> int:
    """Returns about how many bytes the copies of a call will have."""
    mask = call["response_mask"]
    # A tensor's, which nested ones have too, or an array's.
    numel = getattr(mask, "numel", None)
    positions = int(np.size(mask) if numel is None else numel())
    of_token = 9 + 4 * (call.get(VERSIONS) is not None or call.get("version_spans") is not None)
    return positions * of_token


def copy(call: Mapping[str, Any]) -> Rows | None:
    """Copies a call that succeeded; None: it lacks one of the two log-probs to compare."""
    trained = OLD if call.get(OLD) is not None else CURRENT
    if call.get(ROLLOUT) is None or call.get(trained) is None:
        return None
    named = {name: call.get(name) for name in (ROLLOUT, trained, VERSIONS)}
    batch: Batch[Any] = read_batch(named, call[MASK], call.get("sequence_lengths"), None)
    lengths = np.array(batch.lengths, np.int64)
    tensors = {role_name(each.role): each for each in batch.tensors}
    arrays = {name: _array(each.dtype, each.data) for name, each in tensors.items()}
    if call.get("version_spans") is not None:
        arrays[VERSIONS] = _versions(call["version_spans"], lengths)
    if call.get(GROUPS) is not None:
        arrays[GROUPS] = np.array(int_list(GROUPS, call[GROUPS]), np.int64)
    labels = {name: call.get(name) for name in _LABELS}
    labels.update(recorded_at=time.time_ns() // 1_000_000, **_method(call["method"]))
    return Rows(arrays, lengths, labels, sum(array.nbytes for array in arrays.values()))


def _array(dtype: int, data: memoryview) -> Array:
    """A copy as float32, uint8 or int32."""
    array = np.frombuffer(data, _NUMPY[DType(dtype)])
    if dtype == DType.BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if dtype == DType.F16 else array.copy()


def _versions(spans: Any, lengths: Array) -> Array:
    found = np.full(int(lengths.sum()), -1, np.int32)
    begins = np.cumsum(lengths) - lengths
    for span in read_spans(spans, len(lengths)):
        begin = begins[span["sequence"]]
        found[begin + span["start"] : begin + span["end"]] = span["policy_version"]
    return found


def _method(method: Method) -> dict[str, str]:
    """The method's name for people, and a hash of all that it is made of."""
    message = json.dumps(messages.method_to_message(method), sort_keys=True)
    name = "config"
    if isinstance(method, str | Preset):
        name = method if isinstance(method, str) else method.name
    elif isinstance(method, Dialect):
        name = method.system
    return {"method": name, "method_hash": hashlib.sha256(message.encode()).hexdigest()[:16]}
