"""Bounds that the calm steps of a run decide: ``upper="calm:0.999:2"``."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import numpy as np
import pytest
from server_process import ServerProcess

LEVEL = cw.ImportanceWeight(
    ratio_source=cw.RatioSource.OLD_ROLLOUT,
    level=cw.Level.TOKEN,
    bound=cw.Bound.TRUNCATE,
    upper="calm:0.99:3",
)
METHODS: list[tuple[cw.Method, str, float]] = [
    (cw.Preset("token_tis", upper="calm:0.99:2"), "method.parameters[upper]", 2.0),
    (cw.Preset("icepop", upper="calm:0.99:5", lower=0.5), "method.parameters[upper]", 5.0),
    (cw.CorrectionConfig(importance_weight=LEVEL), "method.importance_weight.upper", 3.0),
]


def batch(step: int, rows: int = 20, length: int = 100) -> dict[str, Any]:
    random = np.random.default_rng(step)
    rollout = -random.exponential(size=(rows, length)).astype(np.float32)
    old = (rollout + random.normal(0, 0.1, rollout.shape)).astype(np.float32)
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": old,
        "response_mask": np.ones(rollout.shape, bool),
    }


@pytest.mark.parametrize("transport", ["unary", "stream", "shared_memory"])
@pytest.mark.parametrize("number", range(len(METHODS)))
def test_eight_steps_bound_all_later_ones(
    sharing: ServerProcess, transport: str, number: int
) -> None:
    method, field, until = METHODS[number]
    run = f"{transport}_{number}"
    with cw.Client(sharing.address, transport=transport) as client:
        for step in range(8):
            result = client.correct(method=method, run=run, step=step, **batch(step))
            expected = cw.ResolvedBound(field, until, False, step, 2000 * step)
            assert result.resolved_bounds == (expected,)
        found = [
            client.correct(method=method, run=run, step=step, **batch(step)) for step in (8, 8, 30)
        ]
    logs = np.concatenate(
        [(b["old_log_probs"] - b["rollout_log_probs"]).ravel() for b in map(batch, range(8))]
    )
    exact = np.quantile(logs, 0.99, method="inverted_cdf")
    for result in found:
        (bound,) = result.resolved_bounds
        assert (bound.is_calm, bound.calm_steps, bound.calm_weights) == (True, 8, 16000)
        assert exact <= math.log(bound.value) <= exact * 2**0.25
        assert result.weights.max() <= np.float32(bound.value)
    assert len({result.resolved_bounds[0].value for result in found}) == 1


def test_a_restart_begins_anew(start_server: Callable[..., ServerProcess]) -> None:
    method = cw.Preset("token_tis", upper="calm:0.9:2")
    for _ in range(2):
        server = start_server()
        with cw.Client(server.address) as client:
            for step in range(9):
                result = client.correct(method=method, run="r", step=step, **batch(step))
                assert result.resolved_bounds[0].is_calm == (step == 8)


def test_asyncio(server: ServerProcess) -> None:
    async def run() -> list[bool]:
        async with counterweight_rl.aio.Client(server.address) as client:
            method = cw.Preset("token_tis", upper="calm:0.9:2")
            calls = [
                await client.correct(method=method, run="aio", step=step, **batch(step))
                for step in range(9)
            ]
            return [result.resolved_bounds[0].is_calm for result in calls]

    assert asyncio.run(run()) == [False] * 8 + [True]


def fields_of(raised: pytest.ExceptionInfo[cw.InvalidRequestError]) -> list[str]:
    return [violation.field for violation in raised.value.violations]


def test_what_is_missing_is_named(client: cw.Client) -> None:
    bare = cw.Preset("token_tis", upper="calm:0.99")
    with pytest.raises(cw.InvalidRequestError) as raised:
        client.correct(method=bare, **batch(0))
    assert fields_of(raised) == ["run", "step"]
    with pytest.raises(cw.InvalidRequestError, match="0 steps with 0 weights") as raised:
        client.correct(method=bare, run="named", step=0, **batch(0))
    assert fields_of(raised) == ["method.parameters[upper]"]
    with pytest.raises(cw.InvalidRequestError, match=r"quantile in \(0.5, 1\)") as raised:
        client.correct(
            method=cw.Preset("token_tis", upper="calm:1:2"), run="named", step=0, **batch(0)
        )
    assert fields_of(raised) == ["method.parameters[upper]"]
    config = cw.CorrectionConfig(importance_weight=LEVEL)
    with pytest.raises(cw.InvalidRequestError) as raised:
        client.diagnose(shadows=[bare, config], **batch(0))
    assert fields_of(raised) == [
        "shadows[0].preset.calm_quantiles",
        "shadows[1].config.importance_weight.upper_calm_quantile",
    ]
    assert not client.correct(method="token_tis", run="plain", step=0, **batch(0)).resolved_bounds


@pytest.mark.usefixtures("local_library")
def test_local_refuses_it_by_name() -> None:
    with cw.Client("local:") as client:
        for method, field, _ in METHODS[1:]:
            with pytest.raises(cw.InvalidRequestError, match="by a server alone") as raised:
                client.correct(method=method, run="named", step=0, **batch(0))
            assert fields_of(raised)[0].startswith(field.removesuffix("[upper]"))


@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_a_batch_that_is_not_counted_says_so(
    start_server: Callable[..., ServerProcess], transport: Any
) -> None:
    # Room for the batch and its answer, and not for the 16 MiB of an examination.
    server = start_server("--max_message_bytes=1000000", "--max_bytes_in_flight=12000000")
    method = METHODS[0][0]
    with cw.Client(server.address, transport=transport) as client:
        for step in range(10):
            result = client.correct(method=method, run="tight", step=step, **batch(step, 64, 1024))
            (warning,) = [w for w in result.warnings if "calm level" in w]
            assert ": the server has no memory to examine the batch, so its weights" in warning
            assert result.resolved_bounds[0].calm_weights == 0
        result = client.correct(method=method, run="tight", step=10, metrics=False, **batch(10))
        (warning,) = [w for w in result.warnings if "calm level" in w]
        assert ": the batch has no metrics, so its weights" in warning
