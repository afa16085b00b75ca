"""calls.py compares like with like, and its tables show the worst size."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import pytest

torch = pytest.importorskip("torch")

import calls  # noqa: E402
import calls_tables  # noqa: E402
from counterweight_rl.torch import policy_loss  # noqa: E402


@pytest.mark.parametrize("dtype", calls.DTYPES)
def test_torch_computes_the_same(dtype: str) -> None:
    batch = calls.random_batch(8, 64, calls.DTYPES[dtype])
    current = batch["current"].requires_grad_()
    log_probs = {"rollout_log_probs": batch["rollout"], "old_log_probs": batch["old"]}
    with cw.Client("local:?threads=1") as local:
        result = local.correct(method=calls.WEIGHTS, response_mask=batch["mask"], **log_probs)
        loss = policy_loss(
            local,
            method=calls.LOSS,
            current_log_probs=current,
            response_mask=batch["mask"],
            advantages=batch["advantages"],
            **log_probs,
        )
    loss.backward()
    ours, current.grad = current.grad, None
    mask = batch["mask"].float()
    weights = calls.torch_weights(batch["old"], batch["rollout"], mask)
    torch.testing.assert_close(result.weights, weights)
    theirs = calls.torch_loss(current, batch["old"], batch["rollout"], mask, batch["advantages"])
    theirs.backward()
    torch.testing.assert_close(loss, theirs)
    torch.testing.assert_close(ours, current.grad)


def test_targets_are_of_the_worst_size() -> None:
    def row(work: str, size: list[int], compiled: float, ours: float, metrics: float) -> Any:
        us = {"eager": 1.0, "compiled": compiled, "local:": ours, "local:, metrics": metrics}
        return {"work": work, "dtype": "float32", "size": size, "us": us}

    results = {
        "calls": [
            row("weights", [8, 1024], 10.0, 20.0, 30.0),
            row("weights", [64, 512], 10.0, 61.0, 70.0),
            row("weights", [1024, 4096], 10.0, 999.0, 999.0),
            row("loss", [8, 1024], 100.0, 90.0, 110.0),
            row("loss", [64, 512], 100.0, 99.0, 151.0),
        ]
    }
    cells = calls_tables.targets(results)
    assert [line[2:] for line in cells] == [
        ["51", "**missed**"],
        ["0.99 x", "met"],
        ["1.51 x", "**missed**"],
    ]
    assert "| 1,024 x 4,096 |" in calls_tables.tables(results)[1]
    assert calls_tables.targets({"calls": None})[0][2] == "skipped"
