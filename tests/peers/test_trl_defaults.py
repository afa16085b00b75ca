"""Defaults of a release of TRL: an empty block, and its own GRPOConfig, answer as its own loss."""

from __future__ import annotations

from typing import Any

import defaults
import pytest
import random_batches
import torch
import trl_loss
from comparison import in_float64, same_gradient, same_loss, same_metrics

pytestmark = pytest.mark.compares("GRPOTrainer._compute_loss")

STEPS = {"steps_per_generation": 4, "gradient_accumulation_steps": 2}
SEQUENCE = {"importance_sampling_level": "sequence"}
# Fields of a block beside the defaults.
SAID: dict[str, dict[str, Any]] = {
    "nothing": {},
    **{name: {"loss_type": name} for name in ("grpo", "bnpo", "dr_grpo", "cispo", "sapo")},
    "luspo": {"loss_type": "luspo", **SEQUENCE},
    "gspo": {"loss_type": "grpo", **SEQUENCE},
    "vespo": {"loss_type": "vespo", "vllm_importance_sampling_mode": "token_truncate"},
    "a penalty": {"beta": 0.04},
    "grpo with a penalty": {"loss_type": "grpo", "beta": 0.04},
    **{f"{name}, steps": {"loss_type": name, **STEPS} for name in ("dapo", "cispo", "grpo")},
    "vespo, steps": {
        "loss_type": "vespo",
        "vllm_importance_sampling_mode": "token_truncate",
        **STEPS,
    },
}
ITEMS = 301


def theirs(config: Any, batch: random_batches.Batch) -> tuple[Any, ...]:
    current = batch.current.clone().requires_grad_()
    value, metrics = trl_loss.loss(
        config,
        current,
        batch.mask,
        old_per_token_logps=batch.old,
        ref_per_token_logps=batch.rollout,
        advantages=batch.advantages[:, 0],
        num_items_in_batch=torch.tensor(float(ITEMS)),
    )
    value.backward()
    return value.detach(), current.grad, metrics


@pytest.mark.parametrize("said", SAID)
def test_loss(said: str) -> None:
    config = defaults.of_trl(**SAID[said])
    batch = random_batches.make(81, mask=torch.int64)
    called, exact = theirs(config, batch), theirs(config, in_float64(batch))
    result = defaults.answer(
        {**SAID[said], "num_items_in_batch": ITEMS},
        current_log_probs=batch.current,
        old_log_probs=batch.old,
        ref_log_probs=batch.rollout if config.beta else None,
        advantages=batch.advantages[:, 0],
        response_mask=batch.mask,
    )
    same_loss(torch.tensor(result.loss), called[0], exact[0])
    same_gradient(result.gradient, called[1], exact[1], batch.mask)
    names = {name: value for name, value in called[2].items() if name != "entropy"}
    same_metrics({name: result.metrics[name] for name in names}, names, exact[2])
