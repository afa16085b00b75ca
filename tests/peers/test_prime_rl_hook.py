"""``counterweight_rl.hooks.prime_rl`` in prime-rl's own ``compute_loss``, from a checkout.

prime-rl's configuration imports the hook by its path, and its loop over the packed sequences calls
it. beartype and jaxtyping are stand-ins, and pydantic replaces pydantic_config.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from comparison import GRADIENT_ATOL_OF_LARGEST, LOSS
from counterweight_rl.hooks import prime_rl as hook
from prime_rl.configs.trainer import CustomLossConfig, DefaultLossConfig, IPOLossConfig
from prime_rl.trainer.rl import loss as original

pytestmark = pytest.mark.compares("hooks.prime_rl.policy_loss")

PATH = "counterweight_rl.hooks.prime_rl.policy_loss"
# The last sequence has no token that counts.
LENGTHS = (7, 5, 9, 4)
SCALE = 50


@pytest.fixture(autouse=True)
def not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "_started", None)


def sequences() -> dict[str, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(17)
    found: dict[str, list[torch.Tensor]] = {
        name: [] for name in ("trainer", "inference", "advantages", "mask")
    }
    for row, size in enumerate(LENGTHS):
        trainer = -2 * torch.rand(size, generator=generator)
        found["trainer"].append(trainer.requires_grad_())
        noise = 0.5 * torch.randn(size, generator=generator)
        found["inference"].append((trainer.detach() + noise).clamp(max=-0.01))
        found["advantages"].append(torch.randn(1, generator=generator).expand(size).clone())
        mask = torch.rand(size, generator=generator) < 0.8
        found["mask"].append(mask & (row != len(LENGTHS) - 1))
    return found


def gradient(log_probs: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(log_probs) if log_probs.grad is None else log_probs.grad


def answer(config: Any, weights: Any = None) -> tuple[float, torch.Tensor, dict[str, Any]]:
    """Returns prime-rl's loss, gradient and metrics."""
    data = sequences()
    loss, metrics = original.compute_loss(
        trainer_logprobs=data["trainer"],
        inference_logprobs=data["inference"],
        ref_logprobs=None,
        advantages=data["advantages"],
        loss_mask=data["mask"],
        rl_weights=weights,
        ce_weights=None,
        ref_kl_weights=None,
        rl_loss_fn=original.setup_rl_loss_fn(config),
        rl_scale=SCALE,
        ce_scale=1,
        ref_kl_scale=1,
    )
    loss.backward()
    return loss.item(), torch.cat([gradient(one) for one in data["trainer"]]), metrics


def custom(**kwargs: Any) -> CustomLossConfig:
    return CustomLossConfig(import_path=PATH, kwargs=kwargs)


def same(actual: Any, expected: Any) -> None:
    largest = expected[1].abs().max().item()
    assert largest > 0
    assert actual[0] == pytest.approx(expected[0], rel=LOSS["rtol"], abs=1e-6)
    torch.testing.assert_close(
        actual[1], expected[1], rtol=1e-4, atol=GRADIENT_ATOL_OF_LARGEST * largest
    )


def test_without_a_method_it_is_the_default_loss() -> None:
    expected = answer(DefaultLossConfig())
    assert expected[2]["is_masked"].sum() > 0
    actual = answer(custom())
    same(actual, expected)
    # k3 of the sampled tokens is prime-rl's mismatch KL.
    data = sequences()
    logged = actual[2]["counterweight/k3"].tolist()
    assert len(logged) == len(LENGTHS) - 1
    for row, value in enumerate(logged):
        ratio = data["trainer"][row].detach() - data["inference"][row]
        mismatch = (ratio.exp() - ratio - 1)[data["mask"][row]].mean().item()
        assert value == pytest.approx(mismatch, rel=1e-4)


@pytest.mark.parametrize(
    ("config", "block"),
    [
        (DefaultLossConfig, {"dppo_mask_low": 0.05, "dppo_mask_high": 0.1, "kl_tau": 0.02}),
        (DefaultLossConfig, {"adv_tau": 0.5, "kl_tau": 0.0}),
        (IPOLossConfig, {"ipo_threshold": 0.05}),
    ],
)
def test_a_block_of_prime_rls_own_losses(config: Any, block: dict[str, Any]) -> None:
    expected = answer(config(**block))
    assert 0 < expected[2]["is_masked"].sum() < len(LENGTHS)
    kind = "ipo" if config is IPOLossConfig else "default"
    actual = answer(custom(method={"dialect": "prime_rl", "type": kind, **block}))
    same(actual, expected)
    # prime-rl counts the sequence without tokens as 0.
    kept = actual[2]["counterweight/kept_token_fraction"]
    assert (1 - kept).tolist() == pytest.approx(expected[2]["is_masked"].tolist()[:-1], abs=1e-6)


def test_a_method_of_the_configuration() -> None:
    """Weights truncated at 1.2, times the gradient of the log-prob, from their formula."""
    actual = answer(custom(method={"preset": "token_tis", "upper": 1.2}))
    data = sequences()
    terms = [
        ((now - then).exp().clamp(max=1.2).detach() * (now - now.detach()).exp() * gain)[mask]
        for now, then, gain, mask in zip(*data.values(), strict=True)
    ]
    loss = -torch.cat(terms).sum() / SCALE
    loss.backward()
    same(actual, (loss.item(), torch.cat([gradient(one) for one in data["trainer"]])))
    assert actual[2]["counterweight/weight_mean"].max() <= 1.2


def test_components_of_an_algorithm() -> None:
    """A token of weight 0 belongs to another component."""
    weights = [torch.ones(size) for size in LENGTHS]
    weights[0][:3] = 0
    same(answer(custom(), weights), answer(DefaultLossConfig(), weights))
    weights[1][:] = 0.5
    with pytest.raises(ValueError, match="takes no loss_weights but 1"):
        answer(custom(), weights)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"method": "tokn_tis"}, "[Dd]id you mean 'token_tis'"),
        ({"method": {"preset": "token_tis", "uper": 2.0}}, "uper"),
        ({"targt": "local:"}, "^targt is not a setting; did you mean 'target'"),
    ],
)
def test_wrong_settings(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        answer(custom(**kwargs))
