"""The ``repr`` of a Result."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import counterweight_rl as cw

TIMING = cw.Timing(1 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3)
NOTHING: cw.Result[Any] = cw.Result(
    weights=None,
    keep_mask=None,
    token_reasons=None,
    sequence_reasons=None,
    loss=None,
    gradient=None,
    metrics={},
    rules=(),
    non_finite_tokens=0,
    warnings=(),
    request_id="mine",
    numerics_version=1,
    backend="cpu",
    timing=TIMING,
)
NATIVE = {
    "kept_sequence_fraction": 0.5,
    "kept_token_fraction": 2 / 3,
    "sequences": 2.0,
    "tokens": 3.0,
    "kl": -0.25,
    "k3": 0.03125,
    "effective_sample_size": 0.9,
}


def changed(**changes: Any) -> cw.Result[Any]:
    return dataclasses.replace(NOTHING, **changes)


def test_of_a_native_method() -> None:
    result = changed(
        weights=np.ones((2, 3), np.float32),
        keep_mask=np.ones((2, 3), bool),
        gradient=np.ones((2, 3), np.float32),
        loss=-0.123456789,
        metrics={**NATIVE, "weight_max": 2.0, "weight_min": 0.5},
        rules=(cw.RuleSummary("mean_k3", 1, 1), cw.RuleSummary("max_k2", 0, 0)),
        non_finite_tokens=1,
        warnings=("advantages was sent, but this method does not read it", "b\nc", "d"),
    )
    assert repr(result).splitlines() == [
        "Result of request 'mine', computed by cpu",
        "  arrays:   weights float32 [2, 3], keep_mask bool [2, 3], gradient float32 [2, 3]",
        "  loss:     -0.123457",
        "  kept:     66.6667% of 3 tokens, 50% of 2 sequences, 1 token not finite",
        "  metrics:  kl -0.25, k3 0.03125, effective_sample_size 0.9, 6 more",
        "  rules:    mean_k3 dropped 1 token in 1 sequence, max_k2 dropped 0 tokens in 0 sequences",
        "  warnings: 3",
        "    advantages was sent, but this method does not read it",
        "    b",
    ]


def test_of_a_dialect() -> None:
    metrics = {
        "rollout_corr/k3_kl": 0.001,
        "rollout_corr/kl": 0.002,
        "rollout_corr/rollout_is_eff_sample_size": 0.75,
        "rollout_corr/rollout_rs_masked_fraction": 0.125,
    }
    result = changed(keep_mask=np.ones(5, np.uint8), metrics=metrics, loss=math.nan)
    assert repr(result).splitlines() == [
        "Result of request 'mine', computed by cpu",
        "  arrays:   keep_mask uint8 [5]",
        "  loss:     nan",
        "  kept:     87.5% of the tokens",
        "  metrics:  rollout_corr/kl 0.002, rollout_corr/k3_kl 0.001,",
        "            rollout_corr/rollout_is_eff_sample_size 0.75, 1 more",
    ]
    unknown = changed(metrics={"a": 1.0, "b": 2.0})
    assert repr(unknown).splitlines()[-1] == "  metrics:  2 metrics"


def test_of_nothing() -> None:
    """A loss alone, without metrics: the summary omits absent parts."""
    assert repr(changed(loss=2.0)).splitlines() == [
        "Result of request 'mine', computed by cpu",
        "  arrays:   none",
        "  loss:     2",
    ]


def test_of_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    result = changed(
        weights=torch.ones(2, 3),
        sequence_reasons=torch.zeros(2, dtype=torch.int32),
        keep_mask=torch.ones(2, 3, dtype=torch.bool, device="meta"),
    )
    assert repr(result).splitlines()[1:] == [
        "  arrays:   weights torch.float32 [2, 3], keep_mask torch.bool [2, 3] on meta,",
        "            sequence_reasons torch.int32 [2]",
    ]


def test_fits_a_screen_whatever_is_in_it() -> None:
    big = np.broadcast_to(np.float32(0), (1 << 20, 1 << 20))
    result = changed(
        **dict.fromkeys(
            ("weights", "keep_mask", "gradient", "token_reasons", "sequence_reasons"), big
        ),
        loss=-1.23456789e-300,
        metrics={
            **dict.fromkeys(NATIVE, -1.23456789e-300),
            **{f"rollout_corr/{name}": 1.0 for name in ("kl", "k3_kl")},
            **{f"m{i}": 1.0 for i in range(1000)},
            "tokens": 2.0**40,
            "sequences": 2.0**20,
        },
        rules=tuple(cw.RuleSummary("r" * 64, 2**40, 2**20) for _ in range(16)),
        non_finite_tokens=2**40,
        warnings=tuple("w" * 1000 for _ in range(1000)),
        request_id="i" * 128,
    )
    lines = repr(result).splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 100
    for nested in (*result.rules, result.timing):
        assert len(repr(nested)) <= 200


def test_reads_no_array() -> None:
    class Shy:
        """An array without content."""

        shape = (2, 3)
        dtype = np.dtype(np.float32)

    assert "weights float32 [2, 3]" in repr(changed(weights=Shy()))
