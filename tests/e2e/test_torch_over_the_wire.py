"""torch tensors and autograd against a real server."""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import packed, padded_batch
from goldens import release_of
from test_golden_over_the_wire import GOLDENS, array

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.torch import policy_loss, policy_loss_with_result  # noqa: E402

LOSSES = [name for name, golden in GOLDENS.items() if "loss" in golden["expect"]]


def to_torch(batch: dict[str, Any], dtype: Any = None) -> dict[str, Any]:
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    if dtype is not None:
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                tensors[name] = tensor.to(dtype)
    return tensors


@pytest.mark.parametrize("layout", [dict, packed])
def test_tensors_get_what_arrays_get(client: cw.Client, layout: Any) -> None:
    batch = layout(padded_batch())
    width = {"padded_length": batch.pop("padded_length", None)}
    arrays = client.correct(method="token_tis", **batch, **width)
    tensors = client.correct(method="token_tis", **to_torch(batch), **width)
    assert arrays.weights is not None
    assert arrays.keep_mask is not None
    assert isinstance(tensors.weights, torch.Tensor)
    assert tensors.weights.numpy().tobytes() == arrays.weights.tobytes()
    assert tensors.keep_mask.numpy().tobytes() == arrays.keep_mask.tobytes()
    assert tensors.weights.shape == batch["response_mask"].shape
    np.testing.assert_equal(tensors.metrics, arrays.metrics)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_are_upcast_exactly(client: cw.Client, dtype: str) -> None:
    halves = to_torch(padded_batch(), getattr(torch, dtype))
    floats = {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in halves.items()
    }
    narrow = client.correct(method="token_tis", **halves)
    wide = client.correct(method="token_tis", **floats)
    assert narrow.weights.dtype == torch.float32
    assert torch.equal(narrow.weights, wide.weights)
    np.testing.assert_equal(narrow.metrics, wide.metrics)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_tensors_come_back_to_their_device(client: cw.Client) -> None:
    batch = to_torch(padded_batch())
    expected = client.correct(method="token_tis", **batch)
    there = {name: tensor.cuda() for name, tensor in batch.items()}
    result = client.correct(method="token_tis", **there)
    assert result.weights.device == there["response_mask"].device
    assert torch.equal(result.weights.cpu(), expected.weights)


def golden_tensors(golden: dict[str, Any], dtype: Any = None) -> dict[str, Any]:
    inputs = {
        name: torch.from_numpy(array(rows)).to(dtype or torch.float32)
        for name, rows in golden["inputs"].items()
    }
    inputs["response_mask"] = inputs["response_mask"].bool()
    return inputs


@pytest.mark.parametrize("name", LOSSES)
def test_backward_is_the_originals_gradient(client: cw.Client, name: str) -> None:
    golden = GOLDENS[name]
    inputs = golden_tensors(golden)
    log_probs = inputs["current_log_probs"].requires_grad_()
    method = cw.Dialect(golden["dialect"], golden["params"], release=release_of(golden))
    loss = policy_loss(client, method=method, **inputs)
    np.testing.assert_allclose(loss.item(), float(golden["expect"]["loss"]), rtol=2e-5, atol=1e-7)
    loss.backward()
    if "grad" in golden["expect"]:
        expected = array(golden["expect"]["grad"])
        mask = inputs["response_mask"].numpy()
        gradient = log_probs.grad.numpy()
        atol = 1e-6 * np.abs(expected).max(initial=0.0)
        np.testing.assert_allclose(gradient[mask], expected[mask], rtol=2e-5, atol=atol)
        assert (gradient[~mask] == 0).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gradient_of_cuda_tensors(client: cw.Client) -> None:
    golden = GOLDENS["verl/loss_vanilla_00"]
    gradients = []
    for device in ("cpu", "cuda"):
        inputs = {name: tensor.to(device) for name, tensor in golden_tensors(golden).items()}
        log_probs = inputs["current_log_probs"].requires_grad_()
        policy_loss(client, method=cw.Dialect("verl", golden["params"]), **inputs).backward()
        assert log_probs.grad.device.type == device
        gradients.append(log_probs.grad.cpu())
    assert torch.equal(*gradients)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_dtypes_get_the_gradient_of_what_they_hold(client: cw.Client, dtype: str) -> None:
    golden = GOLDENS["verl/loss_vanilla_00"]
    narrow = golden_tensors(golden, getattr(torch, dtype))
    wide = {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in narrow.items()
    }
    method = cw.Dialect("verl", golden["params"])
    losses = {}
    for width, inputs in (("narrow", narrow), ("wide", wide)):
        inputs["current_log_probs"].requires_grad_()
        losses[width] = policy_loss(client, method=method, **inputs)
        (losses[width] * 1024.0).backward()
    assert torch.equal(losses["narrow"].float(), losses["wide"])
    gradient = narrow["current_log_probs"].grad
    assert gradient.dtype == narrow["current_log_probs"].dtype
    assert torch.equal(gradient, wide["current_log_probs"].grad.to(gradient.dtype))


def test_a_policy_learns(client: cw.Client) -> None:
    """Steps along the gradient raise the probability of better than average tokens."""
    generator = torch.Generator().manual_seed(0)
    actions = torch.randint(0, 4, (16, 8), generator=generator)
    advantages = torch.where(actions == 2, 1.0, -1.0 / 3.0)
    logits = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=1.0)
    old = torch.log_softmax(torch.zeros(4), 0)[actions]
    losses = []
    for _ in range(5):
        loss, result = policy_loss_with_result(
            client,
            current_log_probs=torch.log_softmax(logits, 0)[actions],
            old_log_probs=old,
            rollout_log_probs=old,
            response_mask=torch.ones_like(actions),
            advantages=advantages,
            method=cw.Dialect("openrlhf"),
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert result.metrics["ppo_clip_ratio"] <= 1
    assert losses == sorted(losses, reverse=True)
    assert logits.argmax() == 2
