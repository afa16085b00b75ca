"""``counterweight_rl.compat.prime_rl`` beside prime-rl's own losses, in its ``compute_loss``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import pytest
import torch
from counterweight_rl.compat import prime_rl
from test_prime_rl_hook import (
    LENGTHS,
    SCALE,
    CustomLossConfig,
    DefaultLossConfig,
    IPOLossConfig,
    answer,
    gradient,
    original,
    same,
    sequences,
)

PATH = "counterweight_rl.compat.prime_rl"
FUNCTIONS = {
    "default": (DefaultLossConfig, prime_rl.default_loss_fn),
    "ipo": (IPOLossConfig, prime_rl.ipo_loss_fn),
}
CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("default", {}),
    ("default", {"dppo_mask_low": 0.05, "dppo_mask_high": 0.1, "kl_tau": 0.02}),
    ("default", {"dppo_mask_low": 0.0, "dppo_mask_high": 0.0, "adv_tau": 0.5}),
    ("default", {"kl_tau": 0.0}),
    ("ipo", {}),
    ("ipo", {"ipo_threshold": 0.05, "adv_tau": 2.0}),
    ("ipo", {"ipo_threshold": 1.0, "kl_tau": 0.3}),
]
EACH = pytest.mark.parametrize(("kind", "fields"), CONFIGS, ids=str)

pytestmark = [
    pytest.mark.compares("compat.prime_rl"),
    pytest.mark.filterwarnings("ignore:rule"),
]


def same_metrics(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        assert actual[name].dtype == values.dtype, name
        torch.testing.assert_close(actual[name], values, rtol=2e-4, atol=2e-6, msg=name)


@EACH
def test_the_losses_are_prime_rls_own(kind: str, fields: dict[str, Any]) -> None:
    config = FUNCTIONS[kind][0](**fields)
    expected = answer(config)
    kwargs = {"loss_config": fields} if fields else {}
    path = f"{PATH}.{kind}_loss_fn"
    actual = answer(CustomLossConfig(import_path=path, kwargs=kwargs))
    same(actual, expected)
    same_metrics(actual[2], expected[2])


def inputs(sign: float, *, requires_grad: bool = True) -> list[Any]:
    """Returns sequences with advantages of one sign, 0 among them."""
    found = []
    for row, _ in enumerate(LENGTHS):
        data = {name: one[row] for name, one in sequences().items()}
        gain = sign * data["advantages"].abs()
        gain[::3] = 0
        found.append(
            original.LossInputs(
                trainer_logprobs=data["trainer"].detach().requires_grad_(requires_grad),
                inference_logprobs=data["inference"],
                ref_logprobs=None,
                advantages=gain,
                loss_mask=data["mask"],
            )
        )
    return found


@pytest.mark.parametrize("sign", [1.0, -1.0])
@EACH
def test_each_sequence_alone(kind: str, fields: dict[str, Any], sign: float) -> None:
    """Their objects of configurations; the last sequence has no token that counts."""
    config_class, function = FUNCTIONS[kind]
    own = {"default": original.default_loss_fn, "ipo": original.ipo_loss_fn}[kind]
    config = config_class(**fields)
    for ours, theirs in zip(inputs(sign), inputs(sign), strict=True):
        actual, expected = function(ours, config), own(theirs, config)
        (actual.loss / SCALE).backward()
        (expected.loss / SCALE).backward()
        torch.testing.assert_close(actual.loss, expected.loss, rtol=2e-5, atol=1e-6)
        torch.testing.assert_close(
            gradient(ours.trainer_logprobs), gradient(theirs.trainer_logprobs), rtol=1e-4, atol=1e-7
        )
        same_metrics(actual.metrics, expected.metrics)


@pytest.mark.parametrize("function", [prime_rl.default_loss_fn, prime_rl.ipo_loss_fn])
def test_without_a_configuration_it_is_the_default_one(function: Callable[..., Any]) -> None:
    given = inputs(1.0)[0]
    config = DefaultLossConfig() if function is prime_rl.default_loss_fn else IPOLossConfig()
    assert torch.equal(function(given).loss, function(given, config).loss)


def distilled(seed: int, sign: float | None) -> list[Any]:
    """Returns sequences for ref_kl; ``sign``: of all differences from the reference, or mixed."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for row, size in enumerate((9, 4, 1, 13, 6)):
        trainer = -3 * torch.rand(size, generator=generator)
        drift = 1.2 * torch.randn(size, generator=generator)
        away = torch.randn(size, generator=generator)
        mask = torch.rand(size, generator=generator) < 0.8
        found.append(
            original.LossInputs(
                trainer_logprobs=trainer.requires_grad_(),
                inference_logprobs=(trainer.detach() + drift).clamp(max=-0.001),
                ref_logprobs=trainer.detach() + (away if sign is None else sign * away.abs()),
                # It does not read them.
                advantages=torch.full((size,), torch.nan),
                loss_mask=mask & (row != 4),
                loss_weights=None if row % 2 else torch.ones(size),
            )
        )
    return found


@pytest.mark.parametrize("sign", [None, 1.0, -1.0])
@pytest.mark.parametrize("seed", range(5))
def test_ref_kl_is_prime_rls_own(seed: int, sign: float | None) -> None:
    """The last sequence has no token that counts."""
    dropped = 0.0
    for ours, theirs in zip(distilled(seed, sign), distilled(seed, sign), strict=True):
        actual, expected = prime_rl.ref_kl_loss_fn(ours), original.ref_kl_loss_fn(theirs)
        actual.loss.backward()
        expected.loss.backward()
        torch.testing.assert_close(actual.loss, expected.loss, rtol=2e-5, atol=2e-6)
        torch.testing.assert_close(
            gradient(ours.trainer_logprobs), gradient(theirs.trainer_logprobs), rtol=1e-4, atol=1e-6
        )
        same_metrics(actual.metrics, expected.metrics)
        dropped += expected.metrics["ref_kl/is_masked"].item()
    assert dropped > 0


def test_ref_kl_in_prime_rls_compute_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside tokens of the rl component, which its own loss has."""

    def total() -> tuple[float, torch.Tensor, dict[str, Any]]:
        data = distilled(7, None)
        of_rl = [(torch.arange(one.loss_mask.numel()) % 3 == 0).float() for one in data]
        loss, metrics = original.compute_loss(
            trainer_logprobs=[one.trainer_logprobs for one in data],
            inference_logprobs=[one.inference_logprobs for one in data],
            ref_logprobs=[one.ref_logprobs for one in data],
            advantages=[torch.ones_like(one.advantages) for one in data],
            loss_mask=[one.loss_mask for one in data],
            rl_weights=of_rl,
            ce_weights=None,
            ref_kl_weights=[
                (1 - weight) * one.loss_mask for one, weight in zip(data, of_rl, strict=True)
            ],
            rl_loss_fn=original.setup_rl_loss_fn(DefaultLossConfig()),
            rl_scale=5,
            ce_scale=1,
            ref_kl_scale=11,
        )
        loss.backward()
        return loss.item(), torch.cat([gradient(one.trainer_logprobs) for one in data]), metrics

    expected = total()
    monkeypatch.setattr(original, "ref_kl_loss_fn", prime_rl.ref_kl_loss_fn)
    actual = total()
    same(actual, expected)
    same_metrics(actual[2], expected[2])


def test_ref_kl_needs_the_reference() -> None:
    given = inputs(1.0)[0]
    for function in (prime_rl.ref_kl_loss_fn, original.ref_kl_loss_fn):
        with pytest.raises(ValueError, match="requires ref_logprobs"):
            function(given)


def test_wrong_settings() -> None:
    given = inputs(1.0)[0]
    for fields, name in (({"kl_tau": -1.0}, "kl_tau"), ({"ipo_treshold": 0.1}, "ipo_threshold")):
        with pytest.raises(cw.InvalidRequestError, match=name):
            prime_rl.ipo_loss_fn(given, fields)
    given.loss_weights = torch.full_like(given.advantages, 0.5)
    with pytest.raises(ValueError, match="takes no loss_weights but 1"):
        prime_rl.default_loss_fn(given)


def test_other_names_are_prime_rls_own() -> None:
    assert prime_rl.compute_loss is original.compute_loss
    assert prime_rl.LossInputs is original.LossInputs
