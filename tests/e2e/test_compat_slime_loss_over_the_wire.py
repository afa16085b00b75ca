"""slime's and miles' losses of tokens, reduced as their trainers do, against their answers."""

from __future__ import annotations

import math
from typing import Any

import counterweight_rl as cw
import pytest
from compat_goldens import check_loss, goldens, read
from goldens import GOLDENS

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import miles, slime  # noqa: E402

pytestmark = pytest.mark.usefixtures("compat_client")


def is_of_tokens(golden: dict[str, Any]) -> bool:
    """Whether the loss is that of these functions, without a penalty, correction or masking."""
    params = golden["params"]
    others = (
        *("use_tis", "use_opsm", "use_kl_loss", "get_mismatch_metrics", "use_rollout_logprobs"),
        "skip_actor_forward_only",
    )
    return (
        "loss" in golden["expect"]
        and not any(params.get(name) for name in others)
        and "old_log_probs" in golden["inputs"]
    )


NAMES = [*goldens("slime", is_of_tokens), *goldens("miles", is_of_tokens)]


def test_there_are_goldens_of_each_function() -> None:
    kinds = [
        (GOLDENS[name]["dialect"], GOLDENS[name]["params"].get("advantage_estimator") == "cispo")
        for name in NAMES
    ]
    assert {("slime", True), ("slime", False), ("miles", False)} == set(kinds)
    assert kinds.count(("miles", False)) > 15


@pytest.mark.parametrize("name", NAMES)
def test_policy_losses_of_tokens(name: str) -> None:
    golden = GOLDENS[name]
    params, inputs = golden["params"], read(golden)
    kept = inputs.mask.bool()
    tokens = kept.sum(1).clamp(min=1)
    kl = torch.where(kept, inputs.old - inputs.current, 0.0)
    if params.get("advantage_estimator") == "gspo":
        kl = (kl.sum(1) / tokens).unsqueeze(1).expand_as(kl)
    eps_clip, high = params.get("eps_clip", 0.2), params.get("eps_clip_high")
    bounds = (eps_clip, eps_clip if high is None else high)
    gains = inputs.advantages[kept]
    if params.get("advantage_estimator") == "cispo":
        losses, clipped = slime.compute_cispo_loss(kl[kept], inputs.current[kept], gains, *bounds)
    else:
        of: Any = slime if golden["dialect"] == "slime" else miles
        losses, clipped = of.compute_policy_loss(kl[kept], gains, *bounds, params.get("eps_clip_c"))
    divisors = torch.tensor(params.get("rollout_mask_sums", tokens.tolist())).clamp(min=1)
    rollouts = params.get("step_global_batch_size", len(kept))
    if params.get("calculate_per_token_loss"):
        scale = torch.full(kept.shape, 1 / tokens.sum().item())
    else:
        scale = (1 / (rollouts * divisors)).unsqueeze(1).expand(kept.shape)
    check_loss((losses * scale[kept]).sum(), inputs, golden["expect"])
    share = golden["expect"]["metrics"]["pg_clipfrac"]
    assert (clipped * scale[kept]).sum().item() == pytest.approx(float(share), rel=2e-5, abs=2e-6)


# Ratios below, at and above every bound, for advantages of both signs and none.
RATIOS = (1e-45, 0.3, 0.79, 0.81, 1.0, 1.19, 1.31, 2.9, 3.1, 40.0)
ADVANTAGES = (1.5, -1.5, 0.0)


@pytest.mark.parametrize("bounds", [(0.2, 0.3, 3.0), (0.2, 0.2, None), (1.5, 4.0, 1.25)], ids=str)
def test_every_side_of_every_bound(bounds: tuple[float, float, float | None]) -> None:
    low, high, largest = bounds
    pairs = [(r, a) for r in RATIOS for a in ADVANTAGES]
    kl = torch.tensor([-math.log(r) for r, _ in pairs], requires_grad=True)
    advantages = torch.tensor([a for _, a in pairs])
    losses, clipped = slime.compute_policy_loss(kl, advantages, *bounds)
    losses.sum().backward()
    for i, (r, a) in enumerate(pairs):
        bounded = min(max(r, 1 - low), 1 + high)
        expected, slope = max((-r * a, -r * a), (-bounded * a, 0.0))
        if r * a == bounded * a:
            slope = -r * a
        if largest is not None and a < 0 and r > largest:
            expected, slope = -largest * a, 0.0
        assert losses[i].item() == pytest.approx(expected, rel=1e-5, abs=1e-30), (r, a)
        assert kl.grad[i].item() == pytest.approx(-slope, rel=1e-5, abs=1e-30), (r, a)
        assert clipped[i] == (-bounded * a > -r * a), (r, a)


def test_a_gradient_reaches_tokens_one_by_one() -> None:
    kl = torch.tensor([0.1, -0.1, 0.05], requires_grad=True)
    losses, _ = slime.compute_policy_loss(kl, torch.ones(3), 0.2, 0.2)
    (losses * torch.tensor([2.0, 0.0, 1.0])).sum().backward()
    ratio = (-kl).exp().detach()
    torch.testing.assert_close(losses.detach(), -ratio)
    torch.testing.assert_close(kl.grad, ratio * torch.tensor([2.0, 0.0, 1.0]))


def test_settings_and_numbers_are_checked() -> None:
    kl = torch.zeros(2)
    with pytest.raises(cw.InvalidRequestError, match="eps_clip_c"):
        slime.compute_policy_loss(kl, kl, 0.2, 0.2, 1.0)
    with pytest.raises(cw.InvalidRequestError, match="eps_clip"):
        slime.compute_policy_loss(kl, kl, -0.2, 0.2)
    with pytest.raises(cw.InvalidRequestError):
        slime.compute_policy_loss(torch.tensor([torch.nan, 0.0]), kl, 0.2, 0.2)


def test_a_ratio_that_overflows_is_clipped() -> None:
    kl = torch.tensor([-100.0, -100.0, 100.0], requires_grad=True)
    losses, clipped = slime.compute_policy_loss(kl, torch.tensor([1.0, -1, -1]), 0.2, 0.3, 3.0)
    losses.sum().backward()
    torch.testing.assert_close(losses.detach(), torch.tensor([-1.3, 3.0, 0.8]))
    assert clipped.tolist() == [1, 0, 1]
    assert not kl.grad.any()


def test_miles_bounds_the_log_ratio() -> None:
    """Without a dual clip a token to avoid has the loss of the largest ratio, and no gradient."""
    kl = torch.tensor([-25.0, -19.0, -torch.inf], requires_grad=True)
    losses, clipped = miles.compute_policy_loss(kl, -torch.ones(3), 0.2, 0.3)
    losses.sum().backward()
    largest, inside = math.exp(20), math.exp(19)
    torch.testing.assert_close(losses.detach(), torch.tensor([largest, inside, largest]))
    torch.testing.assert_close(kl.grad, torch.tensor([0.0, -inside, 0.0]))
    assert not clipped.any()
    with pytest.raises(cw.InvalidRequestError):
        miles.compute_policy_loss(torch.full((1,), torch.nan), torch.ones(1), 0.2, 0.3)


def test_cispo_settings_and_no_tokens() -> None:
    kl = torch.zeros(2)
    with pytest.raises(cw.InvalidRequestError, match="eps_clip"):
        slime.compute_cispo_loss(kl, kl, kl, -0.2, 0.2)
    none = torch.zeros(0, requires_grad=True)
    losses, clipped = slime.compute_cispo_loss(none.detach(), none, none.detach(), 0.2, 0.2)
    losses.sum().backward()
    assert losses.shape == clipped.shape == none.grad.shape == (0,)


def test_no_tokens_have_no_loss() -> None:
    kl = torch.zeros(0, requires_grad=True)
    losses, clipped = slime.compute_policy_loss(kl, torch.zeros(0), 0.2, 0.2)
    losses.sum().backward()
    assert losses.shape == clipped.shape == kl.grad.shape == (0,)
