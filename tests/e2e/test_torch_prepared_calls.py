"""Prepared calls with torch's tensors: the answers, types and errors of the first call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import packed, padded_batch
from prepared import by_plan, thrice
from transports import ARRAYS, LOSS, assert_same

torch = pytest.importorskip("torch")

from counterweight_rl.torch import policy_loss, policy_loss_with_result  # noqa: E402

BATCH = {name: torch.from_numpy(array) for name, array in padded_batch().items()}


@pytest.fixture(scope="module", autouse=True)
def built(local_library: None) -> None:
    """There is a library."""


@pytest.fixture
def local() -> Iterator[cw.Client]:
    with cw.Client("local:?threads=1") as connected:
        yield connected


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"response_mask": BATCH["response_mask"].bool()},
        {"response_mask": BATCH["response_mask"].long()},
        {"response_mask": BATCH["response_mask"].float()},
        {"old_log_probs": BATCH["old_log_probs"].bfloat16()},
        {"old_log_probs": BATCH["old_log_probs"].half()},
        {"old_log_probs": BATCH["old_log_probs"].double()},
        {"old_log_probs": BATCH["old_log_probs"].t().contiguous().t()},
        {"old_log_probs": torch.nn.Parameter(BATCH["old_log_probs"].clone())},
        {"old_log_probs": torch.cat([BATCH["old_log_probs"]] * 2)[6:]},
        {"current_log_probs": BATCH["current_log_probs"].clone().requires_grad_()},
        {"advantages": BATCH["advantages"][:, 0]},
        {"advantages": BATCH["advantages"][:, :1]},
        {"out": {"weights": torch.empty(6, 37)}},
        {"outputs": ("loss",)},
    ],
    ids=str,
)
def test_arguments(local: cw.Client, change: dict[str, Any]) -> None:
    outputs = {"outputs": ARRAYS} if "outputs" not in change else {}
    third = thrice(local, method=LOSS, **{**BATCH, **outputs, **change})
    assert by_plan(third)
    if "out" in change:
        assert third.weights is change["out"]["weights"]


def test_packed(local: cw.Client) -> None:
    for lengths in (list, torch.tensor, lambda n: torch.tensor(n, dtype=torch.int32)):
        batch: dict[str, Any] = packed(padded_batch(8, 32, seed=2))
        sizes = [int(n) for n in batch["sequence_lengths"]]
        call = {
            name: torch.from_numpy(array)
            for name, array in batch.items()
            if isinstance(array, np.ndarray)
        }
        call["sequence_lengths"] = lengths(sizes)
        with cw.Client("local:?threads=1") as fresh:
            assert by_plan(thrice(fresh, method=LOSS, outputs=ARRAYS, **call))


def test_a_negated_view_and_a_subclass_are_read_the_whole_way(local: cw.Client) -> None:
    class Own(torch.Tensor):
        pass

    negated = torch.complex(torch.zeros(6, 37), -BATCH["old_log_probs"]).conj().imag
    assert negated.is_neg()
    for old in (negated, BATCH["old_log_probs"].as_subclass(Own)):
        expected = local.correct(method="token_tis", **{**BATCH, "old_log_probs": old.clone()})
        for _ in range(3):
            found = local.correct(method="token_tis", **{**BATCH, "old_log_probs": old})
            np.testing.assert_array_equal(found.weights.numpy(), expected.weights.numpy())


def test_lost_storage_is_refused_not_read(local: cw.Client) -> None:
    for _ in range(3):
        local.correct(method="token_tis", **BATCH)
    whole = torch.cat([BATCH["old_log_probs"]] * 2)
    view = whole[6:]
    whole.untyped_storage().resize_(0)
    with pytest.raises(TypeError, match="has lost its storage"):
        local.correct(method="token_tis", **{**BATCH, "old_log_probs": view})


def test_losses_and_gradients(local: cw.Client) -> None:
    def step(client: cw.Client) -> tuple[float, Any, Any]:
        current = BATCH["current_log_probs"].clone().requires_grad_()
        loss = policy_loss(client, method=LOSS, **{**BATCH, "current_log_probs": current})
        (3.0 * loss).backward()
        with_result, result = policy_loss_with_result(
            client, method=LOSS, **{**BATCH, "current_log_probs": current}
        )
        assert with_result.item() == loss.item() == np.float32(result.loss)
        return loss.item(), current.grad, result

    steps = [step(local) for _ in range(4)]
    assert by_plan(steps[-1][2])
    for loss, gradient, result in steps[1:]:
        assert loss == steps[0][0]
        assert torch.equal(gradient, steps[0][1])
        assert_same(result, steps[0][2])


def test_out_tells_autograd(local: cw.Client) -> None:
    """A backward that needs the overwritten content is an error, as with the first call."""
    out = torch.ones(6, 37)
    for _ in range(3):
        leaf = torch.ones(6, 37, requires_grad=True)
        product = (leaf * out).sum()
        result = local.correct(method="token_tis", out={"weights": out}, **BATCH)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
    assert by_plan(result)


def test_inference_mode(local: cw.Client) -> None:
    with torch.inference_mode():
        third = thrice(local, method=LOSS, outputs=ARRAYS, **BATCH)
    assert by_plan(third)
