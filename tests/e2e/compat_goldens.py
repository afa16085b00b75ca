"""The goldens as the arguments and answers of ``counterweight_rl.compat``."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from goldens import GOLDENS, array

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")


def goldens(system: str, condition: Callable[[dict[str, Any]], bool]) -> list[str]:
    names = [n for n, g in GOLDENS.items() if n.startswith(f"{system}/") and condition(g)]
    assert names
    return names


def answers(golden: dict[str, Any]) -> bool:
    return "error" not in golden["expect"]


def read(golden: dict[str, Any]) -> SimpleNamespace:
    """Returns the inputs as tensors; absent ones are None."""
    names = ("rollout", "old", "current", "ref")
    inputs = {
        name: torch.from_numpy(array(rows).astype(np.float32))
        for name, rows in golden["inputs"].items()
    }
    tensors = {name: inputs.get(f"{name}_log_probs") for name in names}
    if tensors["current"] is not None:
        tensors["current"].requires_grad_()
    mask = inputs["response_mask"].long()
    return SimpleNamespace(**tensors, mask=mask, advantages=inputs.get("advantages"))


def check(actual: torch.Tensor, expected: list[Any], mask: torch.Tensor, *, atol: float) -> None:
    kept = mask.numpy() == 1
    actual, wanted = actual.detach().expand(mask.shape).numpy()[kept], array(expected)[kept]
    np.testing.assert_allclose(actual, wanted, rtol=2e-5, atol=atol)


def check_loss(loss: torch.Tensor, inputs: SimpleNamespace, expect: dict[str, Any]) -> None:
    np.testing.assert_allclose(loss.item(), float(expect["loss"]), rtol=2e-5, atol=1e-7)
    loss.backward()
    if "grad" in expect:
        largest = np.abs(array(expect["grad"])).max(initial=0.0)
        check(inputs.current.grad, expect["grad"], inputs.mask, atol=1e-6 * largest)
        assert (inputs.current.grad[inputs.mask == 0] == 0).all()


def check_metrics(
    actual: dict[str, float], expect: dict[str, Any], *, but: tuple[str, ...] = ()
) -> None:
    for name, value in expect.get("metrics", {}).items():
        if name not in but:
            np.testing.assert_allclose(
                actual[name], float(value), rtol=2e-5, atol=2e-6, err_msg=name
            )
