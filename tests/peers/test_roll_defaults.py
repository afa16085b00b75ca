"""Defaults of ROLL: an empty block, and its own configuration, answer as its worker's loss."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cut
import defaults
import pytest
import random_batches
import torch
from comparison import in_float64, same_gradient, same_loss
from test_roll_correction import original

pytestmark = pytest.mark.compares("ActorWorker.loss_func")

worker = cut.definitions(
    "roll_worker",
    {
        "roll/utils/functionals.py": ("compute_approx_kl",),
        "roll/pipeline/rlvr/actor_worker.py": ("ActorWorker.loss_func",),
    },
    torch=torch,
    Optional=original.Optional,
    agg_loss=original.agg_loss,
    masked_mean=original.masked_mean,
    compute_train_infer_correction=original.compute_train_infer_correction,
)


def theirs(config: Any, batch: random_batches.Batch) -> tuple[Any, Any]:
    """Returns the loss and its gradient; the worker's tensors have a prompt's token first."""
    current = batch.current.clone().requires_grad_()
    mask = batch.mask.long()
    whole = torch.nn.functional.pad(mask, (1, 0))
    tensors = {
        "response_mask": whole,
        "ref_log_probs": batch.old,
        "advantages": batch.advantages,
        "input_ids": whole,
        "infer_logprobs": batch.rollout,
    }
    counts = {"response_mask": int(mask.sum())}
    rows = {"response_mask": int(mask.any(1).sum())}
    data = SimpleNamespace(
        batch=tensors, meta_info={"batch_num_tokens": counts, "global_valid_samples": rows}
    )
    called = SimpleNamespace(
        pipeline_config=config,
        strategy=SimpleNamespace(op_compute_log_probs=lambda **_: current),
        get_old_log_probs_with_cache=lambda *_: batch.old,
        compute_sample_weights=lambda *_: torch.ones(len(mask)),
    )
    loss, _ = worker.ActorWorker.loss_func(called, data, current)
    loss.backward()
    return loss.detach(), current.grad


@pytest.mark.parametrize("said", [{}, {"dual_clip_loss": True}], ids=str)
@pytest.mark.parametrize("kept", ["rows", "empty_row"])
def test_loss(kept: str, said: dict[str, Any]) -> None:
    batch = random_batches.make(85, kept=kept)
    assert (batch.advantages < 0).any()
    config = SimpleNamespace(**{**vars(defaults.of_roll()), **said})
    called, exact = theirs(config, batch), theirs(config, in_float64(batch))
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
