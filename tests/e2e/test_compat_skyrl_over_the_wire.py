"""SkyRL's own functions, called as its trainers call them, against its answers.

If a function is part of a loss, the test writes out the rest of that loss as in the system, and
compares with the system's own loss and gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compat_goldens import answers, check, check_loss, check_metrics, goldens, read
from goldens import GOLDENS, array

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import skyrl  # noqa: E402

# The dialects warn about many settings of the goldens.
pytestmark = [
    pytest.mark.usefixtures("compat_client", "installed_release"),
    pytest.mark.filterwarnings("ignore:method.block"),
]


def is_skyrl_correction(golden: dict[str, Any]) -> bool:
    # use_tis is outside off_policy_correction, the only argument of SkyRL's function.
    no_loss = answers(golden) and "loss" not in golden["expect"]
    return no_loss and "use_tis" not in golden["params"]


@pytest.mark.parametrize("name", goldens("skyrl", is_skyrl_correction))
def test_skyrl_correction(name: str) -> None:
    golden = GOLDENS[name]
    inputs, expect = read(golden), golden["expect"]
    loss, mask, metrics = skyrl.apply_off_policy_correction(
        torch.ones_like(inputs.old),
        inputs.old,
        inputs.rollout,
        inputs.mask,
        golden["params"].get("off_policy_correction", {}),
    )
    np.testing.assert_array_equal(mask.numpy(), array(expect["mask"]))
    if "weights" in expect:
        check(loss, expect["weights"], inputs.mask, atol=1e-8)
    check_metrics(metrics, expect)
    assert metrics.keys() == expect["metrics"].keys()


def skyrl_scale(mask: torch.Tensor, reduction: str) -> torch.Tensor:
    """Returns SkyRL's factor of advantages, before any rejection."""
    if reduction == "token_mean":
        return 1 / mask.sum().clamp(min=1)
    assert reduction == "sequence_mean"
    return 1 / (len(mask) * mask.sum(dim=1, keepdim=True).clamp(min=1))


def is_skyrl_regular(golden: dict[str, Any]) -> bool:
    params = golden["params"]
    return (
        "loss" in golden["expect"]
        and params.get("policy_loss_type", "regular") == "regular"
        and bool(params.get("off_policy_correction"))
        and params.get("loss_reduction", "token_mean") in ("token_mean", "sequence_mean")
        and not params.get("use_kl_loss")
    )


@pytest.mark.parametrize("name", goldens("skyrl", is_skyrl_regular))
def test_skyrl_policy_loss(name: str) -> None:
    golden = GOLDENS[name]
    params, inputs, expect = golden["params"], read(golden), golden["expect"]
    scale = skyrl_scale(inputs.mask, params.get("loss_reduction", "token_mean"))
    advantages = inputs.advantages * scale
    kept = inputs.mask == 1
    log_ratio = torch.where(kept, inputs.current - inputs.old, 0.0)
    ratio = log_ratio.clamp(-20, 20).exp()
    low, high = params.get("eps_clip_low", 0.2), params.get("eps_clip_high", 0.2)
    loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
    loss, mask, metrics = skyrl.apply_off_policy_correction(
        loss, inputs.old, inputs.rollout, inputs.mask, params["off_policy_correction"]
    )
    check_loss((loss * mask).sum(), inputs, expect)
    check_metrics(metrics, expect, but=("clip_ratio",))
    assert {"clip_ratio", *metrics} == expect["metrics"].keys()


SKYRL_CONFIGS: dict[str, dict[str, Any]] = {
    "token": {"tis_ratio_type": "token"},
    "sequence": {"tis_ratio_type": "sequence"},
    "geometric": {"sequence_mask_metric": "geometric"},
    "product": {"sequence_mask_metric": "product"},
    "outliers": {"outlier_token_is_threshold_high": 100.0},
    "all": {
        "tis_ratio_type": "sequence",
        "sequence_mask_metric": "product",
        "outlier_token_is_threshold_low": 1e-4,
        "token_mask_is_threshold_low": 0.5,
        "token_mask_is_threshold_high": 2.0,
    },
}


@pytest.mark.parametrize("name", SKYRL_CONFIGS)
def test_skyrl_metrics_of_a_fully_masked_batch(name: str) -> None:
    """SkyRL then has the same names in the same order, since its ranks reduce them one by one."""
    config = SKYRL_CONFIGS[name]
    old, rollout = torch.full((2, 3), -1.0), torch.full((2, 3), -1.5)
    arguments = (torch.ones(2, 3), old, rollout)
    mask = torch.zeros(2, 3)
    _, _, some = skyrl.apply_off_policy_correction(*arguments, torch.ones(2, 3), config)
    _, kept, none = skyrl.apply_off_policy_correction(*arguments, mask, config)
    assert list(none) == list(some)
    # Every ratio counts times a mask of 0, and the ratio of an empty row is 1, within all bounds.
    assert set(none.values()) == {0.0}
    assert not kept.any()
