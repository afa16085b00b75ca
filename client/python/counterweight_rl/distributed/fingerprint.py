"""What recognizes the rows of a micro-batch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

# The arrays that a step's rules and weights were made of.
_NAMES = ("response_mask", "rollout_log_probs", "old_log_probs")
_WORD = 8


def fingerprint(call: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns a value that is equal for equal arrays, and for others all but never.

    It takes the sum of all bytes as integers, 10 GB/s: it recognizes a micro-batch among those of a
    step, and does not withstand a forger.
    """
    lengths = call.get("sequence_lengths")
    found: list[Any] = [] if lengths is None else [np.asarray(lengths).tobytes()]
    for name in _NAMES:
        array = call.get(name)
        if array is not None:
            found.append((name, tuple(array.shape), _sum_of(array)))
    return tuple(found)


def _sum_of(array: Any) -> int:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        flat = array.detach().contiguous().view(torch.uint8).reshape(-1)
        if flat.device.type != "cpu":
            words = flat[: flat.numel() // _WORD * _WORD].view(torch.int64)
            rest = flat[flat.numel() // _WORD * _WORD :]
            return int(words.sum() * 31 + rest.sum())
        array = flat.numpy()
    flat_bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = flat_bytes.size // _WORD * _WORD
    words = flat_bytes[:whole].view(np.uint64)
    return int(np.add.reduce(words, dtype=np.uint64)) * 31 + int(flat_bytes[whole:].sum())
