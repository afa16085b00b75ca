"""verl's policy losses: ``verl.trainer.ppo.core_algos``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import random_batches
import torch
from comparison import in_float64, is_refusal, same_gradient, same_loss, same_metrics
from counterweight_rl.compat import verl as ours
from omegaconf import OmegaConf
from verl.trainer.config.algorithm import RolloutCorrectionConfig
from verl.trainer.ppo import core_algos as original
from verl.workers.config.actor import ActorConfig, PolicyLossConfig

pytestmark = pytest.mark.filterwarnings("ignore:method.dialect")

LOSSES = (
    "vanilla",
    "dppo_tv",
    "dppo_kl",
    "gspo",
    "sapo",
    "gpg",
    "clip_cov",
    "kl_cov",
    "geo_mean",
    "dro",
    "cispo",
)
# Not proportional to the advantages, into which compat multiplies the weights.
REFUSE_WEIGHTS = ("clip_cov", "kl_cov", "geo_mean", "dro")
AGGREGATIONS = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "seq-mean-token-mean",
)
COUNTS: dict[str, dict[str, Any]] = {
    "none": {},
    "one_rank": {"dp_size": 1, "batch_num_tokens": 73, "global_batch_size": 6},
    "four_ranks": {
        "dp_size": 4,
        "batch_num_tokens": 301,
        "global_batch_size": 24,
        "loss_scale_factor": 32,
    },
}


def actor(aggregation: str, counts: dict[str, Any], **policy_loss: Any) -> ActorConfig:
    return ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=0.1,
        clip_ratio_high=0.15,
        loss_agg_mode=aggregation,
        global_batch_info=dict(counts),
        # clip_cov draws at random from its candidates, unless it takes them all.
        policy_loss=PolicyLossConfig(
            clip_cov_ratio=1.0, clip_cov_lb=0.1, kl_cov_ratio=0.1, **policy_loss
        ),
    )


def answer(
    function: Callable[..., Any],
    batch: random_batches.Batch,
    aggregation: str,
    config: Any,
    weights: torch.Tensor | None = None,
    anchor: str = "old",
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Loss, gradient and metrics."""
    current = batch.current.clone().requires_grad_()
    loss, metrics = function(
        getattr(batch, anchor),
        current,
        batch.advantages,
        batch.mask,
        aggregation,
        config,
        weights,
    )
    loss.backward()
    assert current.grad is not None
    return loss.detach(), current.grad, metrics


def compare(
    theirs: Callable[..., Any],
    mine: Callable[..., Any],
    batch: random_batches.Batch,
    *arguments: Any,
    weights: torch.Tensor | None = None,
    anchor: str = "old",
) -> None:
    called = answer(theirs, batch, *arguments, weights, anchor)
    exact = answer(theirs, in_float64(batch), *arguments, in_float64(weights), anchor)
    actual = answer(mine, batch, *arguments, weights, anchor)
    same_loss(actual[0], called[0], exact[0])
    same_gradient(actual[1], called[1], exact[1], batch.mask)
    same_metrics(actual[2], called[2], exact[2])


@pytest.mark.compares("get_policy_loss_fn")
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_loss(
    loss: str,
    aggregation: str,
    counts: str,
    weighted: bool,
    documented: Callable[[str], None],
) -> None:
    # verl's trainer passes a bool mask; its tests pass a mask of numbers.
    mask = torch.bool if counts == "four_ranks" and loss != "kl_cov" else torch.float32
    batch = random_batches.make(21, mask=mask, kept="empty_row")
    generator = torch.Generator().manual_seed(22)
    weights = 0.2 + 2 * torch.rand(batch.old.shape, generator=generator) if weighted else None
    config = actor(aggregation, COUNTS[counts], loss_mode=loss, dro_beta=0.05)
    theirs, mine = original.get_policy_loss_fn(loss), ours.get_policy_loss_fn(loss)
    if weighted and loss in REFUSE_WEIGHTS:
        answer(theirs, batch, aggregation, config, weights)
        documented("rollout_is_weights are refused where they are no factor of the advantages")
        with pytest.raises(Exception, match="rollout_is_weights") as refusal:
            answer(mine, batch, aggregation, config, weights)
        is_refusal(refusal.value)
        return
    compare(theirs, mine, batch, aggregation, config, weights=weights)


@pytest.mark.compares("get_policy_loss_fn")
@pytest.mark.parametrize("loss", ["vanilla", "gspo", "cispo"])
def test_weights_of_0(loss: str, documented: Callable[[str], None]) -> None:
    batch = random_batches.make(23)
    weights = torch.ones_like(batch.old)
    weights[1] = 0
    config = actor("seq-mean-token-mean", {}, loss_mode=loss)
    theirs, mine = original.get_policy_loss_fn(loss), ours.get_policy_loss_fn(loss)
    exact = answer(theirs, in_float64(batch), "seq-mean-token-mean", config, in_float64(weights))
    actual = answer(mine, batch, "seq-mean-token-mean", config, weights)
    same_loss(actual[0], actual[0], exact[0])
    same_gradient(actual[1], actual[1], exact[1], batch.mask)
    clipped = "actor/pg_clipfrac"
    assert actual[2]["actor/ppo_kl"] == pytest.approx(exact[2]["actor/ppo_kl"], rel=2e-5, abs=2e-6)
    documented("a token of weight 0 counts as not clipped")
    assert actual[2][clipped] <= exact[2][clipped] + 1e-6


CORRECTIONS: dict[str, dict[str, Any]] = {
    "token": {"rollout_is": "token", "rollout_is_threshold": 1.3},
    "icepop": {"rollout_is": "token", "rollout_is_threshold": "0.7_1.4"},
    "sequence": {
        "rollout_is": "sequence",
        "rollout_is_threshold": 2.0,
        "rollout_rs": "seq_mean_k1",
        "rollout_rs_threshold": "0.9_1.1",
    },
}


@pytest.mark.compares("compute_policy_loss_bypass_mode")
@pytest.mark.parametrize("form", ["dataclass", "omegaconf"])
@pytest.mark.parametrize("loss_type", ["ppo_clip", "reinforce"])
@pytest.mark.parametrize("correction", CORRECTIONS)
def test_bypass_mode(correction: str, loss_type: str, form: str) -> None:
    fields = {**CORRECTIONS[correction], "bypass_mode": True, "loss_type": loss_type}
    make = RolloutCorrectionConfig if form == "dataclass" else lambda **f: OmegaConf.create(f)
    config = actor("token-mean", {}, loss_mode="bypass_mode", rollout_correction=make(**fields))
    compare(
        original.get_policy_loss_fn("bypass_mode"),
        ours.get_policy_loss_fn("bypass_mode"),
        random_batches.make(24),
        "token-mean",
        config,
        anchor="rollout",
    )


@pytest.mark.compares("compute_policy_loss_reinforce")
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_reinforce(aggregation: str, weighted: bool) -> None:
    batch = random_batches.make(25)
    weights = (batch.current - batch.rollout).exp().clamp(max=2) if weighted else None
    compare(
        original.compute_policy_loss_reinforce,
        ours.compute_policy_loss_reinforce,
        batch,
        aggregation,
        actor(aggregation, {}),
        weights=weights,
        anchor="rollout",
    )


# Loss, aggregation, counts and fields of the policy loss.
WRONG: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "no beta": ("dro", "token-mean", {}, {}),
    "negative beta": ("dro", "token-mean", {}, {"dro_beta": -1.0}),
    "no tokens counted": ("vanilla", "token-mean", {"dp_size": 2}, {}),
    "no rows counted": ("vanilla", "seq-mean-token-sum", {"dp_size": 2}, {}),
    "no correction": ("bypass_mode", "token-mean", {}, {"rollout_correction": None}),
    "loss type": ("bypass_mode", "token-mean", {}, {"rollout_correction": {"loss_type": "ppo"}}),
    "aggregation": ("vanilla", "mean", {}, {}),
}


@pytest.mark.compares("get_policy_loss_fn")
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_settings(wrong: str) -> None:
    loss, aggregation, counts, fields = WRONG[wrong]
    config = actor("token-mean", counts, loss_mode=loss, **fields)
    batch = random_batches.make(26)
    with pytest.raises(ValueError):
        answer(original.get_policy_loss_fn(loss), batch, aggregation, config)
    with pytest.raises(Exception) as refusal:
        answer(ours.get_policy_loss_fn(loss), batch, aggregation, config)
    if wrong != "no correction":
        is_refusal(refusal.value)
    assert isinstance(refusal.value, ValueError)


@pytest.mark.compares("get_policy_loss_fn")
def test_no_such_loss() -> None:
    for module in (original, ours):
        with pytest.raises(ValueError, match="Unsupported loss mode: nonsense"):
            module.get_policy_loss_fn("nonsense")
    assert set(ours.POLICY_LOSS_REGISTRY) == set(original.POLICY_LOSS_REGISTRY)
