"""miles' functions: ``miles.backends.training_utils.loss_hub`` and its ``mis.py``.

    --use-tis --custom-tis-function-path counterweight_rl.compat.miles.icepop_function

Corrections are slime's, letter by letter (radixark/miles @31f1ca961); see ``compat.slime``. The
losses, of tokens (``math_utils``) and whole (``losses``), are those of the dialect ``miles``:

    --loss-type custom_loss
    --custom-loss-function-path counterweight_rl.compat.miles.policy_loss_function

``counterweight_rl.hooks.miles.policy_loss`` is this loss with the service's own methods. The
differences are those of ``compat.slime``; a log ratio that is NaN, for which miles takes 0, is
refused, dropped or neutralized.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from counterweight_rl.compat import _megatron_loss, _peers, _slime_loss
from counterweight_rl.compat._megatron_blocks import MILES
from counterweight_rl.compat.slime import (
    compute_mis_weights,
    compute_mis_weights_with_cp,
    icepop_function,
    vanilla_tis_function,
)

__all__ = [
    "compute_mis_weights",
    "compute_mis_weights_with_cp",
    "compute_policy_loss",
    "icepop_function",
    "policy_loss_function",
    "vanilla_tis_function",
]

_LOSS = "miles.backends.training_utils.loss"
_LARGEST = 20.0
"""miles' bound of a log ratio, nats."""


def compute_policy_loss(
    ppo_kl: torch.Tensor,
    advantages: torch.Tensor,
    eps_clip: float,
    eps_clip_high: float,
    eps_clip_c: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes the clipped losses of tokens, as slime's function of a bounded log ratio.

    Args:
        ppo_kl: As in ``compat.slime.compute_policy_loss``; read as float32, and bounded by 20 nats,
            beyond which the derivative is 0.
        advantages: As there.
        eps_clip: As there.
        eps_clip_high: As there.
        eps_clip_c: As there.

    Returns:
        As there; the losses are float32 or of the advantages' wider dtype.

    Raises:
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    bounded = ppo_kl.float().clamp(-_LARGEST, _LARGEST)
    return _slime_loss.compute_policy_loss(bounded, advantages, eps_clip, eps_clip_high, eps_clip_c)


def policy_loss_function(
    args: Any,
    batch: Any,
    logits: torch.Tensor,
    sum_of_sample_mean: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Computes a micro-batch's whole policy loss, as ``compat.slime.policy_loss_function``.

    Args:
        args: The trainer's arguments.
        batch: As there, with max_seq_lens; without log_probs ``--skip-actor-forward-only`` takes
            the current ones, and ``--use-rollout-logprobs`` rollout_log_probs.
        logits: As there.
        sum_of_sample_mean: As there.

    Returns:
        The loss; miles' metrics, of MIS those of ``compute_mis_weights``.

    Raises:
        ValueError: The samples are not whole, or the batch lacks log-probs.
        InvalidRequestError: As there.
    """
    found = _peers.load(_LOSS).get_log_probs_and_entropy(
        logits,
        args=args,
        unconcat_tokens=batch["unconcat_tokens"],
        total_lengths=batch["total_lengths"],
        response_lengths=batch["response_lengths"],
        with_entropy=args.entropy_coef != 0 or getattr(args, "observe_training_entropy", False),
        max_seq_lens=batch.get("max_seq_lens"),
    )
    return _megatron_loss.policy_loss(MILES, args, batch, found, logits, sum_of_sample_mean)
