"""Defaults of a release of SkyRL: an empty block, and its own AlgorithmConfig, answer as its losses."""

from __future__ import annotations

from typing import Any

import defaults
import pytest
import random_batches
import torch
from comparison import in_float64, same_gradient, same_loss, same_metrics
from skyrl.backends.skyrl_train.utils import ppo_utils
from skyrl.train.config.config import AlgorithmConfig, OffPolicyCorrectionConfig

pytestmark = [
    pytest.mark.filterwarnings("ignore:method.dialect"),
    pytest.mark.compares("PolicyLossRegistry"),
]

# clip_cov draws at random.
LOSSES = ("regular", "dual_clip", "gspo", "sapo", "cispo", "rollout_is", "dppo", "kl_cov")
CORRECTIONS: list[dict[str, Any]] = [{}, {"tis_ratio_type": "token"}]


def theirs(
    loss: str, correction: dict[str, Any], batch: random_batches.Batch
) -> tuple[Any, Any, dict[str, float]]:
    current = batch.current.clone().requires_grad_()
    config = AlgorithmConfig(
        policy_loss_type=loss, off_policy_correction=OffPolicyCorrectionConfig(**correction)
    )
    assert config.loss_reduction == "token_mean"
    # SkyRL's trainer divides the advantages by the tokens.
    value, metrics = ppo_utils.PolicyLossRegistry.get(loss)(
        current,
        batch.old,
        batch.advantages / batch.mask.sum(),
        config=config,
        loss_mask=batch.mask,
        rollout_logprobs=batch.rollout,
    )
    value.backward()
    return value.detach(), current.grad, metrics


@pytest.mark.parametrize("correction", CORRECTIONS, ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_loss(loss: str, correction: dict[str, Any]) -> None:
    if loss == "kl_cov" and correction:
        pytest.skip("SkyRL refuses both")
    batch = random_batches.make(83)
    called, exact = theirs(loss, correction, batch), theirs(loss, correction, in_float64(batch))
    result = defaults.answer(
        # SkyRL's worker adds the penalty, which is no part of these functions.
        {
            "policy_loss_type": loss,
            "use_kl_loss": False,
            "off_policy_correction": correction,
        },
        current_log_probs=batch.current,
        old_log_probs=batch.old,
        rollout_log_probs=batch.rollout,
        advantages=batch.advantages,
        response_mask=batch.mask,
    )
    same_loss(torch.tensor(result.loss), called[0], exact[0])
    same_gradient(result.gradient, called[1], exact[1], batch.mask)
    ratios = {name for name in result.metrics if name.startswith("cispo/")}
    assert ratios == {name for name in called[2] if name.startswith("cispo/")}
    same_metrics({name: result.metrics[name] for name in called[2]}, called[2], exact[2])
