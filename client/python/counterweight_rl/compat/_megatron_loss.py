"""The whole policy loss of slime and of miles, its fork, from log-probs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from counterweight_rl.compat import _service
from counterweight_rl.compat._megatron_blocks import Trainer, is_mis, loss_block
from counterweight_rl.compat._megatron_metrics import (
    Reduction,
    Tokens,
    of_drift,
    of_mis,
    of_policy,
    of_tis,
)
from counterweight_rl.config import Dialect
from counterweight_rl.torch import attach


def policy_loss(
    trainer: Trainer,
    args: Any,
    batch: Any,
    found: Any,
    logits: torch.Tensor,
    sum_of_sample_mean: Reduction,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Computes a micro-batch's loss, and what the trainer logs.

    Args:
        trainer: The system.
        args: The trainer's arguments.
        batch: Lists of [T_i] and numbers of each sample, as the trainer has them.
        found: log_probs, [T_i] for each sample, and entropy, the same or None; with gradients.
        logits: [1, T, V].
        sum_of_sample_mean: The trainer's reduction by the batch's masks.

    Raises:
        ValueError: Context parallelism, or log-probs that the batch lacks.
        InvalidRequestError: An argument that the dialect refuses.
    """
    tokens = _tokens(trainer, args, batch, torch.cat(list(found["log_probs"])))
    block = loss_block(trainer, args)
    loss, kept, metrics, result = ask(
        trainer,
        block,
        batch,
        {
            "current_log_probs": tokens.current,
            "old_log_probs": joined(batch, "log_probs"),
            "rollout_log_probs": tokens.rollout,
            "advantages": tokens.advantages.detach(),
            "response_mask": tokens.mask,
            "sequence_lengths": [one.numel() for one in tokens.masks],
        },
    )

    def of_kept(values: torch.Tensor) -> torch.Tensor:
        return sum_of_sample_mean(values * kept)

    policy, entropy, log = loss.detach(), loss.new_zeros(()), {}
    if args.use_kl_loss:
        log["kl_loss"] = policy.new_tensor(metrics.get("kl_loss", math.nan))
        policy = policy - args.kl_loss_coef * log["kl_loss"]
    if found.get("entropy") is not None:
        entropy = of_kept(torch.cat(list(found["entropy"])))
    if args.entropy_coef != 0:
        loss = loss - args.entropy_coef * entropy
    if tokens.current.numel() == 0:
        loss = loss + 0 * logits.sum()  # so that backward reaches every rank's model
    log |= {"loss": loss, "pg_loss": policy, "entropy_loss": entropy}
    log |= of_policy(trainer, args, tokens, of_kept, sum_of_sample_mean)
    log |= of_drift(trainer, args, tokens, of_kept)
    if args.use_tis or args.get_mismatch_metrics:
        assert tokens.scored is not None  # the server needs both
        assert tokens.rollout is not None
        ratio = tokens.difference(tokens.scored, tokens.rollout)
        of_tokens = of_tis(block, ratio, tokens.mask)
        if is_mis(trainer, block):
            of_tokens = {f"mis_{n}": one for n, one in of_mis(ratio, result.weights).items()}
        log |= {name: sum_of_sample_mean(values) for name, values in of_tokens.items()}
    return loss, {name: value.detach().clone() for name, value in log.items()}


def ask(
    trainer: Trainer,
    block: dict[str, Any],
    batch: Any,
    tensors: dict[str, Any],
    *,
    given_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, dict[str, float], Any]:
    """Requests the loss that the trainer divides later.

    Args:
        trainer: The system.
        block: Of ``loss_block``.
        batch: The micro-batch.
        tensors: Arguments of ``Client.correct``, the log-probs of all policies among them.
        given_weights: Weights that the advantages were multiplied by, for the step's report.

    Returns:
        The sum of the samples' means or of all tokens; the kept tokens; the dialect's metrics, as
        such sums; the answer.
    """
    masks = batch["loss_masks"]
    tokens = [max(int(one.sum()), 1) for one in masks]
    by_token = bool(block.get("calculate_per_token_loss"))
    divisors = None if by_token else divisors_of(batch, tokens)
    if divisors is not None:
        block = {**block, "rollout_mask_sums": divisors}
    compares = any(block.get(name) for name in ("use_tis", "get_mismatch_metrics"))
    if not compares:
        unread = "old_log_probs" if block.get("use_rollout_logprobs") else "rollout_log_probs"
        tensors = {**tensors, unread: None}
    if block.get("skip_actor_forward_only"):
        tensors = {**tensors, "old_log_probs": None}
    result = _service.ask(
        Dialect(trainer.system, block),
        ref_log_probs=joined(batch, "ref_log_probs") if block.get("use_kl_loss") else None,
        own_warning=f"Metrics of {trainer.system}",
        given_weights=given_weights,
        **tensors,
    )
    # The dialect divides by all tokens or, by the block, by 1; the trainer does so later.
    count = sum(tokens) if by_token else 1
    metrics = {name: value * count for name, value in result.metrics.items()}
    loss = attach(tensors["current_log_probs"], result) * count
    assert result.keep_mask is not None  # a default output
    return loss, result.keep_mask, metrics, result


def joined(batch: Any, name: str) -> torch.Tensor | None:
    """Returns the samples' tensors one after another; None without any."""
    return torch.cat(list(batch[name])) if batch.get(name) else None


def divisors_of(batch: Any, tokens: Sequence[int]) -> list[float] | None:
    """Returns each sample's divisor; None: its own tokens."""
    given = batch.get("rollout_mask_sums")
    if given is None:
        return None
    # A tensor is read at once, because each read of a GPU waits for it.
    given = given.tolist() if isinstance(given, torch.Tensor) else given
    divisors = [max(float(one), 1.0) for one in given]
    return None if divisors == list(tokens) else divisors


def _tokens(trainer: Trainer, args: Any, batch: Any, current: torch.Tensor) -> Tokens:
    masks = list(batch["loss_masks"])
    mask = torch.cat(masks).to(current.device)
    if mask.numel() != current.numel():
        raise ValueError(
            f"counterweight_rl.compat.{trainer.system}.policy_loss_function needs whole samples on "
            "each rank: set --context-parallel-size 1"
        )
    rollout, scored = joined(batch, "rollout_log_probs"), scored_log_probs(args, batch, current)
    if scored is None and trainer.system == "slime":
        scored = current.detach()
    anchor = rollout if args.use_rollout_logprobs else scored
    if anchor is None:
        missing = "rollout_log_probs" if args.use_rollout_logprobs else "log_probs"
        raise ValueError(MISSING[missing])
    advantages = torch.cat(list(batch["advantages"]))
    return Tokens(current, anchor, scored, rollout, advantages, mask, masks)


def scored_log_probs(args: Any, batch: Any, current: torch.Tensor) -> torch.Tensor | None:
    """Returns the training policy's log-probs of the step's beginning; None: not there."""
    if getattr(args, "skip_actor_forward_only", False):
        return current.detach()
    return joined(batch, "log_probs")


MISSING = {
    "rollout_log_probs": "--use-rollout-logprobs needs rollout_log_probs in the batch",
    "log_probs": (
        "the batch has no log_probs of the old policy: let the trainer compute them, or set "
        "--skip-actor-forward-only or --use-rollout-logprobs"
    ),
}
"""Sentences about log-probs that a batch lacks."""
