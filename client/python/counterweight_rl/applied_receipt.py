"""The receipt of weights and a mask, wherever they are."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from counterweight_rl.arguments import int_list
from counterweight_rl.arrays.interop import adopt, check_kinds, is_torch
from counterweight_rl.errors import CounterweightError
from counterweight_rl.local import library
from counterweight_rl.receipt import MODULUS, Receipt

if TYPE_CHECKING:
    import torch

_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_GOLDEN = 0x9E3779B97F4A7C15
_SHIFTS = (30, 27, 31)
_CHUNK = 1 << 16
"""Positions that numpy's passes take at once, so that they stay in the processor's caches."""


def applied(
    weights: npt.NDArray[Any] | torch.Tensor | None,
    mask: npt.NDArray[Any] | torch.Tensor,
    *,
    response_mask: npt.NDArray[Any] | torch.Tensor | None = None,
    sequence_lengths: Iterable[int] | None = None,
) -> Receipt:
    """Returns the receipt of weights and a mask where a loss is multiplied by them.

    Weights that were multiplied by a keep mask have the receipt of the weights and that mask.
    Tensors on a device stay there, and the caller waits for five numbers.

    Args:
        weights: [B, T], or [N] with ``sequence_lengths``; numpy array or torch tensor, read as
            float32. None: all are 1.
        mask: The keep mask of the answer, or what the loss has in its place; 0 and 1 of the same
            shape. None is no mask: it is required.
        response_mask: For ``dropped_tokens``; of the same shape.
        sequence_lengths: Of packed rows, as in ``Client.correct``.

    Raises:
        TypeError: An argument is no numpy array or torch tensor.
        ValueError: The shapes differ.
    """
    named = {"mask": mask, "weights": weights, "response_mask": response_mask}
    arrays = {name: adopt(name, each) for name, each in named.items() if each is not None}
    check_kinds(arrays, "mask")
    for name, array in arrays.items():
        _check(name, array, arrays["mask"])
    mask, weights = arrays["mask"], arrays.get("weights")
    response_mask = arrays.get("response_mask")
    tensor = sys.modules["torch"] if is_torch(mask) else None
    lengths = None if sequence_lengths is None else int_list("sequence_lengths", sequence_lengths)
    rows = _row_lengths(mask, lengths)
    if tensor is not None and mask.device.type != "cpu":
        found = _on_device(tensor, weights, mask, rows)
    else:
        found = _on_host(_as_numpy(weights), _as_numpy(mask), rows)
    if response_mask is None:
        return found
    responses = count_tokens(response_mask)
    return Receipt(
        found.fingerprint,
        found.tokens,
        found.changed_tokens,
        responses - found.tokens,
        found.weight_excess,
    )


def count_tokens(mask: Any) -> int:
    """Returns how many elements of a numpy array or torch tensor are not 0."""
    if is_torch(mask) and mask.device.type != "cpu":
        return int(mask.count_nonzero())
    # torch would wake its threads for it.
    return int(np.count_nonzero(_as_numpy(mask)))


def _check(name: str, array: Any, mask: Any) -> None:
    if not (is_torch(array) or isinstance(array, np.ndarray)):
        raise TypeError(f"{name} must be a numpy array or a torch tensor")
    if tuple(array.shape) != tuple(mask.shape):
        shapes = f"{tuple(array.shape)} and {tuple(mask.shape)}"
        raise ValueError(f"{name} and mask must have the same shape, not {shapes}")


def _row_lengths(mask: Any, lengths: list[int] | None) -> list[int]:
    if lengths is None:
        if mask.ndim != 2:
            raise ValueError(
                f"mask must be [B, T], or [N] with sequence_lengths; its shape is "
                f"{tuple(mask.shape)}"
            )
        return [int(mask.shape[1])] * int(mask.shape[0])
    if mask.ndim != 1 or sum(lengths) != mask.shape[0] or min(lengths, default=0) < 0:
        raise ValueError(
            f"sequence_lengths must be >= 0 and add up to the positions of a mask [N]; its shape "
            f"is {tuple(mask.shape)}"
        )
    return lengths


def _as_numpy(array: Any) -> Any:
    if not is_torch(array):
        return array
    array = array.detach()
    return (array.float() if array.is_floating_point() else array).numpy()


def _on_host(weights: Any, mask: Any, lengths: list[int]) -> Receipt:
    mask = np.ascontiguousarray(mask).reshape(-1)
    if weights is not None:
        weights = np.ascontiguousarray(weights, dtype=np.float32).reshape(-1)
    try:
        found = library.load()
    except CounterweightError:  # only the Python sources are installed
        return _by_numpy(weights, mask, lengths)
    mask = (mask != 0).view(np.uint8)
    rows = np.asarray(lengths, np.int64)
    receipt = library.Receipt()
    place = None if weights is None else weights.ctypes.data
    found.cw_add_receipt(place, mask.ctypes.data, rows.ctypes.data, len(rows), receipt)
    return Receipt(*(getattr(receipt, name) for name, _ in receipt._fields_))


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x ^= x >> np.uint64(_SHIFTS[0])
    x *= np.uint64(_FIRST)
    x ^= x >> np.uint64(_SHIFTS[1])
    x *= np.uint64(_SECOND)
    x ^= x >> np.uint64(_SHIFTS[2])
    return x


def _by_numpy(weights: Any, mask: Any, lengths: list[int]) -> Receipt:
    counted = mask != 0
    if weights is not None:
        counted &= weights != 0
    found = Receipt()
    first, begin = 0, 0
    while first < len(lengths):
        last, end = first, begin
        while last < len(lengths) and (last == first or end + lengths[last] - begin <= _CHUNK):
            end += lengths[last]
            last += 1
        part = None if weights is None else weights[begin:end]
        found += _of_rows(part, counted[begin:end], np.asarray(lengths[first:last], np.intp))
        first, begin = last, end
    return found


def _of_rows(weights: Any, counted: Any, lengths: npt.NDArray[np.intp]) -> Receipt:
    row = np.repeat(np.arange(len(lengths)), lengths)[counted]
    tokens = np.bincount(row, minlength=len(lengths))
    held = tokens[tokens > 0]
    if not held.size:
        return Receipt()
    starts = np.cumsum(held) - held
    k = np.arange(1, row.size + 1, dtype=np.uint64) - np.repeat(starts, held).astype(np.uint64)
    w = np.ones(row.size, np.float32) if weights is None else weights[counted]
    words = w.view(np.uint32).astype(np.uint64)
    words <<= np.uint64(20)
    words ^= k * np.uint64(_GOLDEN)
    sums = np.add.reduceat(_mix(words), starts) + held.astype(np.uint64)
    return Receipt(
        int(np.add.reduce(_mix(sums))),
        int(row.size),
        int(np.count_nonzero(w != 1)),
        0,
        float(np.sum(w, dtype=np.float64) - row.size),
    )


def _on_device(torch: Any, weights: Any, mask: Any, lengths: list[int]) -> Receipt:
    with torch.no_grad():
        counted = mask.reshape(-1) != 0
        if weights is None:
            weights = torch.ones_like(counted, dtype=torch.float32)
        w = weights.detach().reshape(-1).float()
        counted = counted & (w != 0)
        rows = torch.tensor(lengths, device=mask.device)
        row = torch.repeat_interleave(torch.arange(len(lengths), device=mask.device), rows)
        k = counted.cumsum(0)
        ends = rows.cumsum(0)
        before = torch.cat([k.new_zeros(1), k])[ends - rows]
        k = k - before[row]
        bits = w.contiguous().view(torch.int32).to(torch.int64) & 0xFFFFFFFF
        words = torch.where(counted, _mix_tensor((bits << 20) ^ (k * _signed(_GOLDEN))), 0)
        tokens = torch.zeros_like(rows).index_add_(0, row, counted.to(rows.dtype))
        sums = torch.zeros_like(rows).index_add_(0, row, words) + tokens
        fingerprint = torch.where(tokens > 0, _mix_tensor(sums), 0).sum()
        changed = (counted & (w != 1)).sum()
        excess = torch.where(counted, w.double() - 1, 0.0).sum()
        whole = torch.stack([fingerprint, tokens.sum(), changed, excess.view(torch.int64)])
        mark, total, others, bytes_of_excess = whole.tolist()
    return Receipt(
        mark % MODULUS,
        total,
        others,
        0,
        float(np.int64(bytes_of_excess).view(np.float64)),
    )


def _mix_tensor(x: Any) -> Any:
    for shift, factor in zip(_SHIFTS, (_FIRST, _SECOND, 1), strict=True):
        # An arithmetic shift would bring the sign in.
        x = x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))
        x = x * _signed(factor)
    return x


def _signed(word: int) -> int:
    return word - MODULUS if word >= MODULUS // 2 else word
