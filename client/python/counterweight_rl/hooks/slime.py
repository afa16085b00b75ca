"""slime and miles: ``--use-tis --custom-tis-function-path counterweight_rl.hooks.slime.correct``.

The token losses are multiplied by the weights of ``args.counterweight_method`` (from the YAML of
``--custom-config-path``) or ``COUNTERWEIGHT_METHOD``, and its rules remove tokens from the loss
masks. Without a method it is the trainer's own correction, by the dialect "slime": truncation to
[``--tis-clip-low``, ``--tis-clip``], or with the YAML of slime's MIS example, MIS. miles' are the
same. Settings of ``counterweight_rl.compat`` may stand in the same YAML as
``counterweight_target``, ``counterweight_run``, ...

``--custom-megatron-init-path counterweight_rl.hooks.slime.start`` checks all of it before the first
rollout; else that happens with the first loss.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from counterweight_rl.compat import _service
from counterweight_rl.compat._megatron_blocks import has_mis, mis_block, tis_block
from counterweight_rl.config import Dialect, Method
from counterweight_rl.hooks import _arguments, _drift

__all__ = ["correct", "start"]

_started: tuple[int, Method] | None = None


def start(args: Any) -> None:
    """Reads the settings and corrects two tokens, so that a wrong one ends the run at once.

    Raises:
        ValueError: A setting out of its range, or a method that the server refuses.
        CounterweightError: The server does not answer.
    """
    global _started
    _arguments.apply(args)
    method = _arguments.method_of(args)
    if method is None:
        method = Dialect("slime", mis_block(args) if has_mis(args) else tis_block(args))
    zeros = torch.zeros(2)
    _ask(method, zeros, zeros, torch.ones(2, dtype=torch.bool), [2], metrics=False)
    _started = os.getpid(), method


def correct(
    args: Any,
    *,
    pg_loss: torch.Tensor,
    train_log_probs: Sequence[torch.Tensor],
    rollout_log_probs: Sequence[torch.Tensor],
    loss_masks: Sequence[torch.Tensor],
    **_: Any,
) -> tuple[torch.Tensor, list[torch.Tensor], dict[str, torch.Tensor]]:
    """Weights token losses and masks; the trainer calls it once per micro-batch.

    Args:
        args: The trainer's arguments.
        pg_loss: [N], the losses of all samples' response tokens one after another.
        train_log_probs: [T_i] nats for each sample, of the training policy.
        rollout_log_probs: The same of the policy that sampled.
        loss_masks: [T_i], each 0 or 1.

    Returns:
        The weighted losses; the masks without rejected tokens, in their dtype; and for each token
        ``counterweight_weight``, ``counterweight_dropped``, ``counterweight_kl`` and
        ``counterweight_k3``. The trainer averages them.

    Raises:
        ValueError: Context parallelism, where ranks hold parts of the samples, or no log-probs of
            one of the two policies.
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    for name, given, way in (
        ("train_log_probs", train_log_probs, "let the trainer compute log-probs of its own"),
        ("rollout_log_probs", rollout_log_probs, "let the engine return them"),
    ):
        if given is None:
            raise ValueError(f"the trainer gives no {name}, which a correction compares: {way}")
    if sum(mask.numel() for mask in loss_masks) != pg_loss.numel():
        raise ValueError(
            "counterweight_rl.hooks.slime needs whole samples on each rank: set "
            "--context-parallel-size 1"
        )
    weights, masks, metrics = weigh(args, train_log_probs, rollout_log_probs, loss_masks)
    return pg_loss * weights, masks, metrics


def weigh(
    args: Any,
    train_log_probs: Sequence[torch.Tensor],
    rollout_log_probs: Sequence[torch.Tensor],
    loss_masks: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, list[torch.Tensor], dict[str, torch.Tensor]]:
    """Returns the weights of all samples' tokens, [N], and what ``correct`` returns with them."""
    if _started is None or _started[0] != os.getpid():
        start(args)
    assert _started is not None
    old = torch.cat(list(train_log_probs))
    mask = torch.cat(list(loss_masks)).to(old.device)
    lengths = [one.numel() for one in loss_masks]
    rollout = torch.cat(list(rollout_log_probs))
    result = _ask(_started[1], old, rollout, mask, lengths)
    kept = result.keep_mask
    weights = torch.ones_like(old) if result.weights is None else result.weights
    _service.weighed(result, mask, weights, kept, lengths)
    metrics = {
        "counterweight_weight": weights,
        "counterweight_dropped": (mask != kept).to(weights.dtype),
    }
    for name, values in _drift.of_tokens(old, rollout, mask).items():
        metrics[f"counterweight_{name}"] = values
    return weights, list(torch.split(kept, lengths)), metrics


def _ask(
    method: Method,
    old: torch.Tensor,
    rollout: torch.Tensor,
    mask: torch.Tensor,
    lengths: list[int],
    **options: Any,
) -> Any:
    return _service.ask(
        method,
        old_log_probs=old.detach(),
        rollout_log_probs=rollout.detach(),
        response_mask=mask,
        sequence_lengths=lengths,
        own_warning="Metrics of slime",
        **options,
    )
