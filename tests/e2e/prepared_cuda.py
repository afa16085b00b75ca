"""Calls with tensors on the fake device, and comparisons of their answers."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import numpy as np
import torch
from prepared import BATCH, by_plan
from transports import ARRAYS, assert_same

DIRECT = ("weights", "keep_mask", "gradient")  # written in place: torch converts nothing
HOST = {name: torch.from_numpy(array) for name, array in BATCH.items()}


def received(tensors: Any, result: cw.Result[Any]) -> cw.Result[Any]:
    """The result with CPU tensors; those of the device were there."""
    arrays = {}
    for name in ARRAYS:
        array = getattr(result, name)
        assert array is None or tensors.index_of(array) == 0, name
        arrays[name] = tensors.receive(array)
    tensors.device.synchronize(tensors.stream)
    found = {name: getattr(result, name) for name in cw.Result.__dataclass_fields__}
    return cw.Result(**{**found, **arrays})


def assert_third_is_first(tensors: Any, client: cw.Client, **call: Any) -> cw.Result[Any]:
    """Sends the call three times; returns the third answer, on the host."""
    results = [client.correct(**call) for _ in range(3)]
    assert not by_plan(results[0])
    assert by_plan(results[2])
    first, _, third = [received(tensors, result) for result in results]
    assert_same(third, first)
    return third


def on_cpu(**call: Any) -> cw.Result[Any]:
    with cw.Client("local:?threads=1") as cpu:
        return cpu.correct(**call)


def assert_numbers(result: cw.Result[Any], expected: cw.Result[Any]) -> None:
    """Compares answers of two backends, of torch's and numpy's arrays."""
    for name in ARRAYS:
        a, b = getattr(result, name), getattr(expected, name)
        assert (a is None) == (b is None), name
        if a is not None:
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b), name)
    np.testing.assert_equal(result.loss, expected.loss)
    np.testing.assert_equal(result.metrics, expected.metrics)
    assert result.rules == expected.rules
