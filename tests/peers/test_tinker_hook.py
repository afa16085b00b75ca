"""``counterweight_rl.hooks.tinker`` in Tinker's own client, ``forward_backward_custom``.

The client makes the loss's gradient the weights of the request that its service runs next; that
step is the client's own and is called here. The service is not: log-probs are given. Its HTTP
packages are stand-ins.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import counterweight_rl as cw
import pytest
import tinker
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, GRADIENT_RTOL, LOSS
from counterweight_rl.hooks.tinker import policy_loss, traceable
from tinker.lib.public_interfaces.custom_loss import (
    check_loss_inputs,
    encode_graph,
    run_loss_handle,
    trace_loss,
)
from tinker.lib.public_interfaces.training_client import TrainingClient

pytestmark = pytest.mark.compares("hooks.tinker.policy_loss")

LENGTHS = (7, 4, 9)


def batch(with_old: bool = False, **without: bool) -> tuple[list[tinker.Datum], list[Any]]:
    """Returns data as tinker_cookbook makes them, and the log-probs of the current policy."""
    generator = torch.Generator().manual_seed(71)
    data, current = [], []
    for size in LENGTHS:
        old = -0.1 - 2 * torch.rand(size, generator=generator)
        inputs = {
            "target_tokens": torch.randint(9, (size,), generator=generator),
            "logprobs": old + 0.3 * torch.randn(size, generator=generator),
            "advantages": torch.randn(size, generator=generator),
            "mask": (torch.rand(size, generator=generator) < 0.8).float(),
        }
        current.append(old + 0.1 * torch.randn(size, generator=generator))
        if with_old:
            inputs["old_logprobs"] = old
        tensors = {
            name: tinker.TensorData.from_torch(value)
            for name, value in inputs.items()
            if name not in without
        }
        tokens = tinker.ModelInput.from_ints(list(range(size)))
        data.append(tinker.Datum(model_input=tokens, loss_fn_inputs=tensors))
    return data, current


def run(data: list[tinker.Datum], current: list[torch.Tensor], loss_fn: Any) -> Any:
    """Returns loss, gradients and metrics as Tinker's client computes and sends them."""
    outputs = [{"logprobs": tinker.TensorData.from_torch(one)} for one in current]
    forward = SimpleNamespace(loss_fn_outputs=outputs)
    found = TrainingClient._compute_custom_loss(data, loss_fn, forward)
    gradients = [-datum.loss_fn_inputs["weights"].to_torch() for datum in found.data]
    return found.loss_sum, torch.cat(gradients), found.metrics


def exact(
    data: list[tinker.Datum], current: list[torch.Tensor], upper: float | None
) -> tuple[float, torch.Tensor]:
    """Tinker's documented importance_sampling in float64; with ``upper``, a truncated weight."""

    def joined(name: str) -> torch.Tensor:
        return torch.cat([datum.loss_fn_inputs[name].to_torch().double() for datum in data])

    now = torch.cat(current).double().requires_grad_()
    if upper is None:
        ratio = (now - joined("logprobs")).exp()
    else:
        has_old = "old_logprobs" in data[0].loss_fn_inputs
        old = joined("old_logprobs") if has_old else now.detach()
        ratio = (old - joined("logprobs")).exp().clamp(max=upper) * (now - old).exp()
    loss = -(ratio * joined("advantages") * joined("mask")).sum()
    loss.backward()
    return loss.item(), now.grad


def same(actual: Any, expected: tuple[float, torch.Tensor]) -> None:
    size = expected[1].abs().sum().item()
    assert actual[0] == pytest.approx(expected[0], rel=LOSS["rtol"], abs=1e-6 * size)
    atol = GRADIENT_ATOL_OF_LARGEST * expected[1].abs().max().item()
    torch.testing.assert_close(actual[1].double(), expected[1], rtol=GRADIENT_RTOL, atol=atol)


def test_without_a_method_it_is_tinkers_importance_sampling() -> None:
    data, current = batch()
    found = run(data, current, policy_loss())
    same(found, exact(data, current, None))
    assert found[2]["counterweight/tokens"] == sum(
        datum.loss_fn_inputs["mask"].to_torch().sum().item() for datum in data
    )


@pytest.mark.parametrize("with_old", [False, True], ids=["one_step", "several_steps"])
@pytest.mark.parametrize(
    "method",
    [
        {"preset": "token_tis", "upper": 1.1},
        '{"preset": "token_tis", "upper": 1.1}',
        cw.Preset("token_tis", upper=1.1),
    ],
    ids=["mapping", "json", "preset"],
)
def test_truncated_weights(method: Any, with_old: bool) -> None:
    data, current = batch(with_old)
    same(run(data, current, policy_loss(method)), exact(data, current, 1.1))


@pytest.mark.compares("hooks.tinker.traceable")
@pytest.mark.parametrize("with_old", [False, True], ids=["one_step", "several_steps"])
@pytest.mark.parametrize(
    "method",
    [
        None,
        {"preset": "token_tis", "upper": 1.1},
        {
            **{"preset": "icepop", "lower": 0.8, "upper": 1.3},
            "policy_loss": {
                **{"surrogate": "ppo_clip", "clip_low": 0.1, "clip_high": 0.1, "dual_clip": 1.5}
            },
        },
        {
            "preset": "token_tis",
            "policy_loss": {"surrogate": "cispo", "clip_low": 1.0, "clip_high": 0.1},
        },
    ],
    ids=["none", "token_tis", "icepop", "cispo"],
)
def test_tinker_traces_a_method(method: Any, with_old: bool) -> None:
    """By its own tracer, as the graph that it sends to its servers, run as its client runs it."""
    data, current = batch(with_old)
    loss, gradients, metrics = run(data, current, policy_loss(method))
    function = traceable(method, old_logprobs=with_old)
    ranks = dict.fromkeys(inspect.signature(function).parameters, 1)
    handle = trace_loss(function, ranks, "session")
    assert encode_graph(handle).nodes
    for datum in data:
        datum.loss_fn_inputs["sampler_logprobs"] = datum.loss_fn_inputs["logprobs"]
    check_loss_inputs(handle, data)
    leaves = [one.clone().requires_grad_() for one in current]
    total, sums = run_loss_handle(handle, data, leaves)
    total.backward()
    same((total.item(), torch.cat([leaf.grad for leaf in leaves])), (loss, gradients.double()))
    assert sums["custom/counterweight_tokens:sum"] == metrics["counterweight/tokens"]


def test_without_a_mask_every_token_counts() -> None:
    data, current = batch(mask=True)
    _, gradient, metrics = run(data, current, policy_loss("token_tis"))
    assert metrics["counterweight/tokens"] == sum(LENGTHS)
    assert (gradient != 0).all()


@pytest.mark.parametrize("name", ["logprobs", "advantages"])
def test_missing_inputs(name: str) -> None:
    data, current = batch(**{name: True})
    with pytest.raises(ValueError, match=rf"^data\[0\]\.loss_fn_inputs has no '{name}'$"):
        run(data, current, policy_loss())


def test_several_targets_for_a_position() -> None:
    data, current = batch()
    current[1] = current[1].reshape(2, 2)
    with pytest.raises(ValueError, match=r"^data\[1\] has log-probs of shape \[2, 2\]"):
        run(data, current, policy_loss())


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("tokn_tis", "did you mean 'token_tis'"),
        ({"dialect": "verl", "rollout_is": "token"}, "must be a preset"),
        (3, "^method must be a preset's name or a mapping"),
    ],
)
def test_a_wrong_method_is_refused_at_once(method: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy_loss(method)
