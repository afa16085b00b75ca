"""Comparisons of prepared calls with the first call of their kind, and calls that are wrong."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import numpy as np
from batches import padded_batch
from transports import ARRAYS, assert_same

BATCH = padded_batch()
WRONG: dict[str, dict[str, Any]] = {
    "shape": {"old_log_probs": BATCH["old_log_probs"][:, :-1]},
    "rows": {"old_log_probs": BATCH["old_log_probs"][:-1]},
    "nan": {"old_log_probs": np.full_like(BATCH["old_log_probs"], np.nan)},
    "mask": {"response_mask": BATCH["response_mask"] * 2},
    "dtype": {"old_log_probs": np.zeros(BATCH["old_log_probs"].shape, np.int32)},
    "list": {"old_log_probs": BATCH["old_log_probs"].tolist()},
    "masked array": {"old_log_probs": np.ma.masked_invalid(BATCH["old_log_probs"])},
    "missing": {"old_log_probs": None},
    "out of another shape": {"out": {"weights": np.empty((2, 2), np.float32)}},
    "out of another dtype": {"out": {"weights": np.empty(BATCH["advantages"].shape)}},
    "out not asked for": {"out": {"token_reasons": np.empty(BATCH["advantages"].shape, np.uint16)}},
    "out of no method": {"out": {"gradient": np.empty(BATCH["advantages"].shape, np.float32)}},
    "out is no mapping": {"out": [1]},
    "out twice": {"out": dict.fromkeys(("weights", "gradient"), np.empty((6, 37), np.float32))},
    "version": {"policy_version": -1},
    "version of a float": {"policy_version": 1.0},
    "id": {"request_id": "\n"},
    "no id": {"request_id": 7},
    "timeout": {"timeout": 0},
    "metrics": {"metrics": None},
    "unknown": {"reponse_mask": 1},
    "bool for a number": {"method": cw.Preset("token_tis", upper=True)},
    "padded length": {"padded_length": 37},
}


def by_plan(result: cw.Result[Any]) -> bool:
    """Returns whether a plan or a template answered the call."""
    return "_late" in vars(result)


def thrice(client: cw.Client, **call: Any) -> cw.Result[Any]:
    """Compares the third answer with the first; returns it."""
    first, _, third = [client.correct(**call) for _ in range(3)]
    assert not by_plan(first)
    assert_same(third, first)
    assert list(third.metrics) == list(first.metrics)
    assert third.staleness == first.staleness
    for name in ARRAYS:
        assert strides(getattr(third, name)) == strides(getattr(first, name)), name
    return third


def strides(array: Any) -> Any:
    """Returns those of an array or a tensor."""
    return None if array is None else array.stride() if hasattr(array, "stride") else array.strides
