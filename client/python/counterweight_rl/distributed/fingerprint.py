"""Fingerprints of the rows of a micro-batch."""

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
    if type(array) is not np.ndarray:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(array, torch.Tensor):
            array = np.asarray(array)
        elif array.device.type == "cpu":
            array = array.detach().contiguous().view(torch.uint8).numpy()
        else:
            return _sum_on_device(torch, array)
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.nbytes % _WORD:
        flat = flat.view(np.uint8)
        whole = flat.size // _WORD * _WORD
        return int(np.add.reduce(flat[:whole].view(np.uint64))) * 31 + int(flat[whole:].sum())
    return int(np.add.reduce(flat.view(np.uint64))) * 31


def _sum_on_device(torch: Any, tensor: Any) -> int:
    flat = tensor.detach().contiguous().view(torch.uint8).reshape(-1)
    whole = flat.numel() // _WORD * _WORD
    return int(flat[:whole].view(torch.int64).sum() * 31 + flat[whole:].sum())
