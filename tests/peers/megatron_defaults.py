"""An answer to slime's or miles' defaults beside the trainer's own loss."""

from __future__ import annotations

from typing import Any

import defaults
import torch
from megatron_trainer import Answer, batch, log_softmax, same

DRAWS = ("plain", "per_token", "shared", "negative")
# Fields beside the defaults.
SAID: dict[str, dict[str, Any]] = {
    "nothing": {},
    "tis": {"use_tis": True},
    "gspo": {"advantage_estimator": "gspo"},
    "a penalty": {"use_kl_loss": True, "kl_loss_coef": 0.1},
}


def check(called: Answer, said: dict[str, Any], draw: str) -> None:
    """The client's answer to these fields alone is the trainer's, by its logits."""
    logits, data = batch(draw)
    shifted, start = [], 0
    for size, total in zip(data["response_lengths"], data["total_lengths"], strict=True):
        start += total
        shifted.append(logits[0, start - size - 1 : start - 1])
    words = torch.cat(
        [
            one[-size:]
            for one, size in zip(data["unconcat_tokens"], data["response_lengths"], strict=True)
        ]
    )
    current, _ = log_softmax(torch.cat(shifted), words, with_entropy=False)
    current = current.squeeze(1)
    result = defaults.answer(
        {
            **said,
            "rollout_mask_sums": data["rollout_mask_sums"].tolist(),
            # The step's rollouts, by which the trainer divides.
            "step_global_batch_size": 8,
        },
        current_log_probs=current.detach(),
        old_log_probs=torch.cat(data["log_probs"]),
        rollout_log_probs=torch.cat(data["rollout_log_probs"]),
        ref_log_probs=torch.cat(data["ref_log_probs"]) if "use_kl_loss" in said else None,
        advantages=torch.cat(data["advantages"]),
        response_mask=torch.cat(data["loss_masks"]),
        sequence_lengths=data["response_lengths"],
    )
    current.backward(result.gradient)
    same((result.loss, logits.grad), called)
