"""verl's own functions, called as its trainers call them, against its answers.

If a function is part of a loss, the test writes out the rest of that loss as in the system, and
compares with the system's own loss and gradient.
"""

from __future__ import annotations

from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from compat_goldens import answers, check, check_loss, check_metrics, goldens, read
from goldens import GOLDENS, array

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")

from counterweight_rl import compat  # noqa: E402
from counterweight_rl.compat import skyrl, verl  # noqa: E402

# The dialects warn about many settings of the goldens.
pytestmark = [
    pytest.mark.usefixtures("compat_client", "installed_release"),
    pytest.mark.filterwarnings("ignore:method.block"),
]

CORRECTION_FIELDS = {
    "rollout_is",
    "rollout_is_threshold",
    "rollout_is_batch_normalize",
    "rollout_rs",
    "rollout_rs_threshold",
}


@pytest.mark.parametrize(
    ("policy", "weights", "kept"), [("drop", [0, 1], [0, 1]), ("neutralize", [1, 1], [1, 1])]
)
def test_a_nan_follows_the_policy(
    client: cw.Client, policy: str, weights: list[float], kept: list[int]
) -> None:
    old, mask = torch.full((1, 2), -1.0), torch.ones(1, 2)
    arguments = (old, torch.tensor([[torch.nan, -1.0]]), mask)
    with pytest.raises(cw.InvalidRequestError):
        verl.compute_rollout_correction_and_rejection_mask(*arguments, "token")
    compat.use(client, non_finite=policy)
    holder, mask, _ = verl.compute_rollout_correction_and_rejection_mask(*arguments, "token")
    assert holder.batch["rollout_is_weights"].tolist() == [weights]
    assert mask.tolist() == [kept]
    skyrl_weights, metrics, mask = skyrl.compute_off_policy_correction(
        *arguments, {"tis_ratio_type": "token"}
    )
    assert skyrl_weights.tolist() == [weights]
    assert mask.tolist() == [kept]
    assert len(metrics) == 5


def is_verl_correction(golden: dict[str, Any]) -> bool:
    return golden["params"].keys() <= CORRECTION_FIELDS


@pytest.mark.parametrize(
    "name", goldens("verl", lambda golden: is_verl_correction(golden) and answers(golden))
)
def test_verl_correction(name: str) -> None:
    golden = GOLDENS[name]
    inputs, expect = read(golden), golden["expect"]
    weights, mask, metrics = verl.compute_rollout_correction_and_rejection_mask(
        inputs.old, inputs.rollout, inputs.mask, **golden["params"]
    )
    assert mask.dtype == inputs.mask.dtype
    if "mask" in expect:
        np.testing.assert_array_equal(mask.numpy(), array(expect["mask"]))
    if "weights" in expect:
        check(weights.batch["rollout_is_weights"], expect["weights"], inputs.mask, atol=1e-8)
    check_metrics(metrics, expect)
    assert all(name.startswith("rollout_corr/") for name in metrics)


@pytest.mark.parametrize(
    "name", goldens("verl", lambda golden: is_verl_correction(golden) and not answers(golden))
)
def test_verl_correction_error(name: str) -> None:
    inputs = read(GOLDENS[name])
    with pytest.raises(cw.InvalidRequestError):
        verl.compute_rollout_correction_and_rejection_mask(
            inputs.old, inputs.rollout, inputs.mask, **GOLDENS[name]["params"]
        )


def has_plain_verl_loss(golden: dict[str, Any]) -> bool:
    # verl adds the KL term outside of its policy losses.
    return "loss" in golden["expect"] and not golden["params"]["policy_loss"].get("use_kl_loss")


def verl_config(params: dict[str, Any]) -> dict[str, Any]:
    """Returns the block's flat policy_loss in the two levels of verl's ActorConfig."""
    policy_loss = params.get("policy_loss", {})
    correction = {k: v for k, v in params.items() if k not in ("policy_loss", "bypass_mode")}
    return {**policy_loss, "policy_loss": {**policy_loss, "rollout_correction": correction}}


@pytest.mark.parametrize("name", goldens("verl", has_plain_verl_loss))
def test_verl_policy_loss(name: str) -> None:
    golden = GOLDENS[name]
    params, inputs, expect = golden["params"], read(golden), golden["expect"]
    bypass = params.get("bypass_mode", False)
    mode = params["policy_loss"].get("loss_mode", "bypass_mode" if bypass else "vanilla")
    aggregation = params["policy_loss"].get("loss_agg_mode", "token-mean")
    weights, mask, metrics = None, inputs.mask, {}
    if mode != "bypass_mode":
        # As in verl's trainer: the correction first, once; then its weights and mask.
        numerator = inputs.current if bypass else inputs.old
        correction = {k: v for k, v in params.items() if k in CORRECTION_FIELDS}
        holder, mask, metrics = verl.compute_rollout_correction_and_rejection_mask(
            numerator.detach(), inputs.rollout, mask, **correction
        )
        weights = holder.batch["rollout_is_weights"] if holder is not None else None
    compute = (
        verl.compute_policy_loss_reinforce if mode == "reinforce" else verl.get_policy_loss_fn(mode)
    )
    arguments = (
        inputs.rollout if bypass else inputs.old,
        inputs.current,
        inputs.advantages,
        mask,
        aggregation,
        verl_config(params),
        weights,
    )
    if weights is not None and mode in ("clip_cov", "kl_cov", "geo_mean", "dro"):
        with pytest.raises(cw.InvalidRequestError, match="rollout_is_weights"):
            compute(*arguments)
        return
    loss, loss_metrics = compute(*arguments)
    check_loss(loss, inputs, expect)
    # A token of weight 0 counts as not clipped, see README.
    zeroed = weights is not None and bool((weights[mask == 1] == 0).any())
    but = ("actor/pg_clipfrac", "actor/pg_clipfrac_lower") if zeroed else ()
    check_metrics({**metrics, **loss_metrics}, expect, but=but)
