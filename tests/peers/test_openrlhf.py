"""OpenRLHF's ``openrlhf.models.loss.PolicyLoss``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import random_batches
import releases
import torch
from comparison import in_float64, is_refusal, same_gradient, same_loss
from counterweight_rl.compat.openrlhf import PolicyLoss as Ours
from openrlhf.models.loss import PolicyLoss as Original

pytestmark = [
    pytest.mark.filterwarnings("ignore:method.dialect"),
    pytest.mark.compares("PolicyLoss"),
]

# Since 0.11.2 the correction has other names, and a fifth value with the filtered share.
BY_LEVEL = releases.is_at_least("0.11.2")

RATIO, DIVERGENCE = [0.7, 1.4], [0.0, 0.02]


def by_level(level: str, mode: str, gating: str, threshold: list[float]) -> dict[str, Any]:
    return {
        "is_correction_level": level,
        "is_correction_mode": mode,
        "is_correction_gating": gating,
        "is_correction_threshold": threshold,
    }


def by_type(name: str) -> dict[str, Any]:
    return {
        "enable_vllm_is_correction": True,
        "vllm_is_correction_type": name,
        "vllm_is_truncated_threshold": RATIO,
    }


CORRECTIONS: dict[str, dict[str, Any]] = {"off": {}}
if BY_LEVEL:
    CORRECTIONS |= {
        "token clip": by_level("token", "clip", "ratio", RATIO),
        "token mask": by_level("token", "mask", "ratio", RATIO),
        "seq mask": by_level("seq", "mask", "ratio", RATIO),
        "token kl": by_level("token", "mask", "binary_kl", DIVERGENCE),
        "seq kl": by_level("seq", "mask", "binary_kl", DIVERGENCE),
        "token tv": by_level("token", "mask", "tv", [0.0, 0.1]),
        "seq tv": by_level("seq", "mask", "tv", [0.0, 0.05]),
    }
else:
    CORRECTIONS |= {name: by_type(name) for name in ("tis", "icepop", "seq-mask-tis")}
CLIPS: dict[str, dict[str, Any]] = {
    "default": {},
    "asymmetric": {"clip_eps_low": 0.1, "clip_eps_high": 0.15},
    "dual": {"dual_clip": 1.5},
}
COUNTS: dict[str, dict[str, Any]] = {
    "local": {},
    "global": {"dp_size": 4, "batch_num_tokens": 301.0, "global_batch_size": 24.0},
}
KEPT = ("rows", "empty_row", "none")


def answer(
    loss_of: Callable[..., torch.nn.Module],
    batch: random_batches.Batch,
    settings: dict[str, Any],
    counts: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor | None, ...]]:
    """Loss, gradient and metrics, called as OpenRLHF's trainer calls it."""
    current = batch.current.clone().requires_grad_()
    loss, *metrics = loss_of(**settings)(
        current,
        batch.old,
        batch.advantages,
        action_mask=batch.mask,
        rollout_log_probs=batch.rollout,
        **counts,
    )
    loss.backward()
    assert current.grad is not None
    return loss.detach(), current.grad, tuple(metrics)


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("level", ["tokens", "samples"])
@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("loss_type", ["ppo", "gspo"])
def test_policy_loss(
    loss_type: str,
    correction: str,
    level: str,
    clip: str,
    kept: str,
    counts: str,
    documented: Callable[[str], None],
) -> None:
    settings = {
        "policy_loss_type": loss_type,
        "token_level_loss": level == "tokens",
        **CORRECTIONS[correction],
        **CLIPS[clip],
    }
    batch = random_batches.make(51, kept=kept)
    called = answer(Original, batch, settings, COUNTS[counts])
    exact = answer(Original, in_float64(batch), settings, COUNTS[counts])
    loss, gradient, metrics = answer(Ours, batch, settings, COUNTS[counts])
    same_loss(loss, called[0], exact[0])
    if exact[1].isnan().any():
        assert kept == "none"
        assert loss.isnan()
        documented("the gradient is 0 where the mask is 0, also of a loss that is NaN")
        assert (gradient == 0).all()
    else:
        same_gradient(gradient, called[1], exact[1], batch.mask)
    for mine, theirs, value in zip(metrics, called[2], exact[2], strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            torch.testing.assert_close(
                mine.double(), value.double(), rtol=2e-5, atol=2e-6, equal_nan=True
            )
    assert len(metrics) == len(called[2])


@pytest.mark.parametrize("mask", [torch.bool, torch.int64], ids=str)
@pytest.mark.parametrize("loss_type", ["ppo", "gspo"])
def test_masks_of_other_dtypes(loss_type: str, mask: torch.dtype) -> None:
    batch = random_batches.make(52, mask=mask)
    settings = {"policy_loss_type": loss_type}
    called = answer(Original, batch, settings, {})
    exact = answer(Original, in_float64(batch), settings, {})
    loss, gradient, _ = answer(Ours, batch, settings, {})
    same_loss(loss, called[0], exact[0])
    same_gradient(gradient, called[1], exact[1], batch.mask)


WRONG: dict[str, dict[str, Any]] = {
    "dual clip": {"dual_clip": 1.0},
    "loss type": {"policy_loss_type": "grpo"},
}
if BY_LEVEL:
    WRONG |= {
        "level": by_level("row", "mask", "ratio", RATIO),
        "mode": by_level("token", "drop", "ratio", RATIO),
        "gating": by_level("token", "mask", "kl", RATIO),
        "clip of a sequence": by_level("seq", "clip", "ratio", RATIO),
        "clip of a divergence": by_level("token", "clip", "tv", DIVERGENCE),
        "divergence from below": by_level("token", "mask", "tv", RATIO),
    }
else:
    WRONG |= {"correction type": by_type("drop"), "even if off": {"vllm_is_correction_type": "x"}}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_settings(wrong: str, documented: Callable[[str], None]) -> None:
    batch = random_batches.make(53)
    with pytest.raises(Exception) as theirs:
        answer(Original, batch, WRONG[wrong], {})
    with pytest.raises(Exception) as refusal:
        answer(Ours, batch, WRONG[wrong], {})
    is_refusal(refusal.value)
    if isinstance(theirs.value, ValueError):
        assert isinstance(refusal.value, ValueError)
    else:
        documented("a wrong setting is an InvalidRequestError whatever the original raises")


def is_accepted(loss_of: Callable[..., torch.nn.Module], settings: dict[str, Any]) -> bool:
    try:
        loss_of(**settings)
    except (ValueError, AssertionError):
        return False
    return True


@pytest.mark.skipif(not BY_LEVEL, reason="combinations exist since 0.11.2")
@pytest.mark.parametrize("low", [0.0, 0.5, None])
@pytest.mark.parametrize("gating", ["ratio", "binary_kl", "tv", "kl"])
@pytest.mark.parametrize("mode", ["mask", "clip", "drop"])
@pytest.mark.parametrize("level", ["off", "token", "seq", "row"])
def test_the_constructor_refuses_the_same(
    level: str, mode: str, gating: str, low: float | None
) -> None:
    settings = by_level(level, mode, gating, [0.0 if low is None else low, 5.0])
    if low is None:
        del settings["is_correction_threshold"]
    assert is_accepted(Ours, settings) == is_accepted(Original, settings)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_not_finite(number: float, documented: Callable[[str], None]) -> None:
    batch = random_batches.make(54)
    row, column = batch.mask.nonzero()[0].tolist()
    batch.old[row, column] = number
    answer(Original, batch, {}, {})
    documented("NaN or infinity where the mask is 1 is refused")
    with pytest.raises(Exception) as refusal:
        answer(Ours, batch, {}, {})
    is_refusal(refusal.value)
