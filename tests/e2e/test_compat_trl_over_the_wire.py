"""TRL's own functions, called as its trainers call them, against its answers.

If a function is part of a loss, the test writes out the rest of that loss as in the system, and
compares with the system's own loss and gradient.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compat_goldens import answers, check, check_loss, check_metrics, goldens, read
from goldens import GOLDENS, array

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl.compat import trl  # noqa: E402

# The dialects warn about many settings of the goldens.
pytestmark = [
    pytest.mark.usefixtures("compat_client", "installed_release"),
    pytest.mark.filterwarnings("ignore:method.block"),
]

RATIO_FIELDS = {
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min",
}


def trl_ratio(params: dict[str, Any], inputs: SimpleNamespace) -> tuple[Any, dict[str, float]]:
    fields = {name: value for name, value in params.items() if name in RATIO_FIELDS}
    return trl.vllm_importance_sampling_ratio(inputs.old, inputs.rollout, inputs.mask, **fields)


def trl_advantages(inputs: SimpleNamespace) -> torch.Tensor:
    """Returns [B, 1] as in TRL, if each row has one number."""
    column = inputs.advantages[:, :1]
    same = bool((inputs.advantages == column).all())
    return column if same else inputs.advantages


def is_trl_ratio(golden: dict[str, Any]) -> bool:
    return (
        answers(golden)
        and "weights" in golden["expect"]
        and "current_log_probs" not in golden["inputs"]
        and golden["params"].keys() <= RATIO_FIELDS
    )


@pytest.mark.parametrize("name", goldens("trl", is_trl_ratio))
def test_trl_ratio(name: str) -> None:
    golden = GOLDENS[name]
    inputs, expect = read(golden), golden["expect"]
    ratio, metrics = trl_ratio(golden["params"], inputs)
    mode = golden["params"].get("vllm_importance_sampling_mode", "sequence_mask")
    assert ratio.shape[1] == (1 if mode.startswith("sequence") else inputs.mask.shape[1])
    check(ratio, expect["weights"], inputs.mask, atol=1e-8)
    check_metrics(metrics, expect)


def is_trl_opsm(golden: dict[str, Any]) -> bool:
    # The factored form of pull request 4891 does not call get_off_policy_mask.
    geometric = "sequence_geometric_mean_mask"
    return (
        answers(golden)
        and "mask" in golden["expect"]
        and "loss" not in golden["expect"]
        and golden["params"].get("vllm_importance_sampling_mode") != geometric
        and {"rollout_log_probs", "old_log_probs"} & golden["inputs"].keys() != set()
    )


@pytest.mark.parametrize("name", goldens("trl", is_trl_opsm))
def test_trl_off_policy_mask(name: str) -> None:
    golden = GOLDENS[name]
    inputs = read(golden)
    advantages = trl_advantages(inputs)
    keep = trl.get_off_policy_mask(
        advantages=advantages,
        per_token_logps=inputs.current,
        sampling_per_token_logps=inputs.old if inputs.rollout is None else inputs.rollout,
        mask=inputs.mask,
        off_policy_threshold=golden["params"]["off_policy_mask_threshold"],
    )
    assert keep.shape == advantages.shape
    assert keep.dtype == inputs.mask.dtype
    np.testing.assert_array_equal((keep * inputs.mask).numpy(), array(golden["expect"]["mask"]))


def is_trl_dapo(golden: dict[str, Any]) -> bool:
    params = golden["params"]
    return (
        "loss" in golden["expect"]
        and params.get("loss_type", "dapo") == "dapo"
        and params.get("importance_sampling_level", "token") == "token"
        and not params.keys() & {"delta", "num_items_in_batch", "steps_per_generation"}
        and {"rollout_log_probs", "old_log_probs"} <= golden["inputs"].keys()
        and params.get("vllm_importance_sampling_correction", True)
        # Advantages are one per row; otherwise there is no (B, 1).
        and not (
            params.get("vllm_importance_sampling_mode") == "sequence_geometric_mean_mask"
            and "off_policy_mask_threshold" in params
        )
    )


@pytest.mark.parametrize("name", goldens("trl", is_trl_dapo))
def test_trl_loss(name: str) -> None:
    """TRL's default loss around its two functions."""
    golden = GOLDENS[name]
    params, inputs, expect = golden["params"], read(golden), golden["expect"]
    kept = inputs.mask == 1
    advantages = trl_advantages(inputs)

    def masked(difference: torch.Tensor) -> torch.Tensor:
        return torch.where(kept, difference, 0.0)

    epsilon = params.get("epsilon", 0.2)
    epsilon_high = params.get("epsilon_high")
    high = 1 + (epsilon if epsilon_high is None else epsilon_high)
    ratio = masked(inputs.current - inputs.old).exp()
    loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - epsilon, high) * advantages)
    if params.get("off_policy_mask_threshold") is not None:
        loss = loss * trl.get_off_policy_mask(
            advantages,
            inputs.current,
            inputs.rollout,
            inputs.mask,
            params["off_policy_mask_threshold"],
        )
    weights, metrics = trl_ratio(params, inputs)
    loss = loss * weights
    if params.get("beta"):
        difference = masked(inputs.ref - inputs.current)
        loss = loss + params["beta"] * (difference.exp() - difference - 1)
    check_loss((loss * inputs.mask).sum() / inputs.mask.sum().clamp(min=1), inputs, expect)
    sampling = {k: v for k, v in expect.get("metrics", {}).items() if k.startswith("sampling/")}
    check_metrics(metrics, {"metrics": sampling})
