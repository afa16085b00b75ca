"""Checks the destination arrays of ``Client.correct(out=...)``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from counterweight_rl.arrays.batch import Batch
from counterweight_rl.arrays.device_array import DeviceArray, adopt_device_array
from counterweight_rl.arrays.interop import ArrayT, addresses, is_torch
from counterweight_rl.arrays.requested_outputs import ARRAYS, RequestedOutputs
from counterweight_rl.arrays.torch_kinds import unreadable
from counterweight_rl.errors import Violation, refuse
from counterweight_rl.suggestions import did_you_mean


def check_destinations(
    out: Mapping[str, ArrayT], batch: Batch[ArrayT], requested: RequestedOutputs
) -> dict[str, ArrayT]:
    """Checks all of ``out`` before the request is sent, and returns the arrays by name.

    Raises:
        TypeError: It is not a mapping.
        InvalidRequestError: An array cannot hold its output.
    """
    if not isinstance(out, Mapping):
        raise TypeError(f"out must be a mapping of outputs to arrays, not {type(out).__name__}")
    if isinstance(batch.response_mask, DeviceArray):
        arrays: Any = {
            name: adopt_device_array(f"out[{name!r}]", array) or array
            for name, array in out.items()
        }
        out = arrays
    violations = [
        Violation(f"out[{name!r}]", problem)
        for name, array in out.items()
        for problem in _problems(name, array, batch, requested)
    ]
    if not violations:
        violations = _overlaps(out)
    if violations:
        raise refuse(violations)
    return dict(out)


def _problems(name: str, array: Any, batch: Batch[Any], requested: RequestedOutputs) -> list[str]:
    if name not in ARRAYS:
        return [f"must be one of {', '.join(ARRAYS)}{did_you_mean(name, ARRAYS)}"]
    if name not in requested.arrays:
        return ["is not asked for; name it in outputs"]
    if isinstance(batch.response_mask, DeviceArray) != isinstance(array, DeviceArray):
        kind = "on a device" if isinstance(batch.response_mask, DeviceArray) else "of its kind"
        return [f"must be an array {kind}, as response_mask is; it is a {type(array).__name__}"]
    if batch.nested is not None:
        return ["is not for nested tensors, whose answers are new ones; pass packed tensors"]
    torch = is_torch(batch.response_mask)
    if isinstance(array, np.ma.MaskedArray):
        return ["must have no mask of its own; pass its data"]
    if is_torch(array) and (problem := unreadable("it", array)) is not None:
        return [f"must be a plain tensor; it {problem.partition(';')[0]}"]
    if is_torch(array) and (array.is_nested or array.is_neg()):
        return ["must be a plain tensor; it is a view of another or nested"]
    if isinstance(array, DeviceArray):
        pass
    elif is_torch(array) != torch or not (torch or isinstance(array, np.ndarray)):
        kind = "a torch tensor" if torch else "a numpy array"
        return [f"must be {kind}, as response_mask is; it is a {type(array).__name__}"]
    problems = []
    for what, have, want in (
        ("shape", tuple(array.shape), batch.output_shape(name)),
        ("dtype", array.dtype, batch.output_dtype(name)),
    ):
        if have != want:
            problems.append(f"must have {what} {want}; it has {have}")
    if isinstance(array, DeviceArray):
        return [*problems, "must be writable"] if array.read_only else problems
    return problems + (_torch_problems(array, batch) if torch else _numpy_problems(array))


def _numpy_problems(array: np.ndarray[Any, Any]) -> list[str]:
    problems = []
    if not array.flags.c_contiguous:
        problems.append("must be C-contiguous")
    if not array.flags.writeable:
        problems.append("must be writable")
    return problems


def _torch_problems(array: Any, batch: Batch[Any]) -> list[str]:
    torch = sys.modules["torch"]
    problems = []
    if array.device != batch.response_mask.device:
        device = batch.response_mask.device
        problems.append(f"must be on {device}, as response_mask is; it is on {array.device}")
    if array.layout != torch.strided or not array.is_contiguous():
        problems.append("must be contiguous")
    if array.requires_grad:
        problems.append("must be writable: it must not require a gradient")
    if array.is_inference() and not torch.is_inference_mode_enabled():
        problems.append("must be writable: it was made in torch's inference mode")
    return problems


def _overlaps(out: Mapping[str, Any]) -> list[Violation]:
    violations = []
    last_name, last_end = "", 0
    for begin, end, name in sorted((*addresses(array), name) for name, array in out.items()):
        if begin < last_end and begin < end:
            violations.append(Violation(f"out[{name!r}]", f"shares memory with out[{last_name!r}]"))
        if end > last_end:
            last_name, last_end = name, end
    return violations
