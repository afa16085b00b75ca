"""Defaults of a release of verl: an empty block, and the tree of its command line, answer as its losses."""

from __future__ import annotations

from typing import Any

import defaults
import pytest
import random_batches
import torch
from comparison import in_float64, same_gradient, same_loss, same_metrics
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config.actor import ActorConfig, PolicyLossConfig

pytestmark = [
    pytest.mark.filterwarnings("ignore:method.dialect"),
    pytest.mark.compares("get_policy_loss_fn"),
]

# clip_cov draws at random; dro has no default of its beta.
LOSSES = (*("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "kl_cov", "geo_mean", "cispo"),)


def theirs(loss: str, batch: random_batches.Batch) -> tuple[Any, Any, dict[str, Any]]:
    current = batch.current.clone().requires_grad_()
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=PolicyLossConfig(loss_mode=loss),
    )
    value, metrics = get_policy_loss_fn(loss)(
        batch.old, current, batch.advantages, batch.mask, config.loss_agg_mode, config, None
    )
    value.backward()
    return value.detach(), current.grad, metrics


@pytest.mark.parametrize("loss", LOSSES)
def test_loss(loss: str) -> None:
    batch = random_batches.make(84)
    called, exact = theirs(loss, batch), theirs(loss, in_float64(batch))
    result = defaults.answer(
        {"actor_rollout_ref": {"actor": {"policy_loss": {"loss_mode": loss}}}},
        current_log_probs=batch.current,
        old_log_probs=batch.old,
        advantages=batch.advantages,
        response_mask=batch.mask,
    )
    same_loss(torch.tensor(result.loss), called[0], exact[0])
    same_gradient(result.gradient, called[1], exact[1], batch.mask)
    same_metrics({name: result.metrics[name] for name in called[2]}, called[2], exact[2])
