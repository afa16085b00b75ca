"""Defaults of a release of OpenRLHF: an empty block answers as its own PolicyLoss."""

from __future__ import annotations

from typing import Any

import defaults
import pytest
import random_batches
import releases
import torch
from comparison import in_float64, same_gradient, same_loss
from openrlhf.models.loss import PolicyLoss

pytestmark = [
    pytest.mark.filterwarnings("ignore:method.dialect"),
    pytest.mark.compares("PolicyLoss"),
]

# Arguments of PolicyLoss beside the defaults, which the dialect calls the same.
SAID: list[dict[str, Any]] = [{}, {"policy_loss_type": "gspo"}, {"dual_clip": 2.0}]
SAID.append({"token_level_loss": False})
if releases.is_at_least("0.11.2"):
    SAID += [{"is_correction_level": level} for level in ("token", "seq")]
    SAID.append({"is_correction_level": "token", "is_correction_mode": "clip"})
else:
    SAID.append({"enable_vllm_is_correction": True, "vllm_is_truncated_threshold": [0.5, 2.0]})


def theirs(said: dict[str, Any], batch: random_batches.Batch) -> tuple[Any, Any]:
    current = batch.current.clone().requires_grad_()
    loss, *_ = PolicyLoss(**said)(
        current, batch.old, batch.advantages, batch.mask, rollout_log_probs=batch.rollout
    )
    loss.backward()
    return loss.detach(), current.grad


@pytest.mark.parametrize("said", SAID, ids=str)
def test_loss(said: dict[str, Any]) -> None:
    batch = random_batches.make(82)
    called, exact = theirs(said, batch), theirs(said, in_float64(batch))
    result = defaults.answer(
        said,
        current_log_probs=batch.current,
        old_log_probs=batch.old,
        rollout_log_probs=batch.rollout,
        advantages=batch.advantages,
        response_mask=batch.mask,
    )
    same_loss(torch.tensor(result.loss), called[0], exact[0])
    same_gradient(result.gradient, called[1], exact[1], batch.mask)
