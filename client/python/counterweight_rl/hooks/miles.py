"""miles: slime's hooks, and ``--loss-type custom_loss`` computed by the service.

    --custom-loss-function-path counterweight_rl.hooks.miles.policy_loss

The loss is that of the trainer's arguments, by the dialect "miles", with OPSM and KL penalty; or
with ``args.counterweight_method`` that of its ``policy_loss``, weights and rules. A method without
a ``policy_loss`` replaces the trainer's own correction alone. The loss is reduced as the trainer
does: the sum of the samples' means, by ``rollout_mask_sums`` if the batch has them, or with
``--calculate-per-token-loss`` the sum over tokens. Entropy is the trainer's own.

``start`` is that of ``counterweight_rl.hooks.slime``, and so is ``correct``, which here also takes
context parallelism: every rank of a group gathers the samples' log-probs and corrects them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from counterweight_rl.choices import LossAggregation
from counterweight_rl.compat import _megatron_loss, _peers, _service
from counterweight_rl.compat._megatron_blocks import MILES, loss_block
from counterweight_rl.compat._megatron_loss import MISSING, divisors_of, joined, scored_log_probs
from counterweight_rl.hooks import _arguments, _drift, slime
from counterweight_rl.hooks._method import WEIGHED, has_loss, with_loss
from counterweight_rl.hooks.slime import start
from counterweight_rl.torch import attach

__all__ = ["correct", "policy_loss", "start"]

_MODULE = "miles.backends.training_utils.loss"
_CONTEXT_PARALLEL = "miles.backends.training_utils.cp_utils"
_PARALLEL = "miles.backends.training_utils.parallel"
_OURS = tuple(f"counterweight_rl.hooks.{name}.correct" for name in ("miles", "slime"))
_checked_in: int | None = None  # process


def correct(
    args: Any,
    *,
    pg_loss: torch.Tensor,
    train_log_probs: Sequence[torch.Tensor],
    rollout_log_probs: Sequence[torch.Tensor],
    loss_masks: Sequence[torch.Tensor],
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
    parallel_state: Any,
    max_seq_lens: Sequence[int] | None = None,
) -> tuple[torch.Tensor, list[torch.Tensor], dict[str, torch.Tensor]]:
    """``slime.correct``, also where each rank holds a part of every sample.

    Args:
        args: The trainer's arguments.
        pg_loss: [N], the losses of this rank's tokens.
        train_log_probs: This rank's part of each sample, nats, of the training policy.
        rollout_log_probs: The same of the policy that sampled.
        loss_masks: [T_i], each 0 or 1, of whole responses.
        total_lengths: Tokens of each sample.
        response_lengths: T_i.
        parallel_state: miles' groups of ranks.
        max_seq_lens: Padded lengths, for ``--qkv-format bshd``.

    Returns:
        This rank's weighted losses and metrics; masks of whole responses.
    """
    if parallel_state.cp.size == 1 or train_log_probs is None or rollout_log_probs is None:
        return slime.correct(
            args,
            pg_loss=pg_loss,
            train_log_probs=train_log_probs,
            rollout_log_probs=rollout_log_probs,
            loss_masks=loss_masks,
        )
    parts = _peers.load(_CONTEXT_PARALLEL)
    padded = max_seq_lens if max_seq_lens is not None else [None] * len(loss_masks)
    places = list(zip(total_lengths, response_lengths, padded, strict=True))

    def whole(samples: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [
            parts.all_gather_with_cp(sample, total, response, args.qkv_format, longest)
            for sample, (total, response, longest) in zip(samples, places, strict=True)
        ]

    def of_this_rank(tokens: torch.Tensor) -> torch.Tensor:
        samples = tokens.split(list(response_lengths))
        return torch.cat(
            [
                parts.slice_log_prob_with_cp(sample, total, response, args.qkv_format, longest)
                for sample, (total, response, longest) in zip(samples, places, strict=True)
            ]
        )

    with torch.no_grad():
        old, rollout = whole(train_log_probs), whole(rollout_log_probs)
    weights, masks, metrics = slime.weigh(args, old, rollout, loss_masks)
    metrics = {name: of_this_rank(values) for name, values in metrics.items()}
    return pg_loss * of_this_rank(weights), masks, metrics


def policy_loss(
    args: Any,
    batch: Any,
    logits: torch.Tensor,
    sum_of_sample_mean: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Computes a micro-batch's loss; miles calls it.

    Args:
        args: The trainer's arguments.
        batch: advantages, log_probs, rollout_log_probs, ref_log_probs, loss_masks, each a list of
            [T_i]; unconcat_tokens, total_lengths, response_lengths; rollout_mask_sums, the divisor
            of each sample. With ``--skip-actor-forward-only`` the current log-probs, detached, are
            the old ones; with ``--use-rollout-logprobs`` rollout_log_probs are.
        logits: [1, T, V]; get the gradient.
        sum_of_sample_mean: The trainer's reduction, for the entropy.

    Returns:
        The loss, and what the trainer logs: loss, pg_loss, entropy_loss, pg_clipfrac, ppo_kl,
        ``counterweight_kl`` and ``counterweight_k3``, and with ``--use-kl-loss`` kl_loss.

    Raises:
        ValueError: An unsupported argument, a dialect as the method, context parallelism, or
            log-probs that the batch lacks.
        InvalidRequestError: An argument that the dialect refuses, by its name; and see
            ``counterweight_rl.compat``.
    """
    global _checked_in
    if _checked_in != os.getpid():
        _check(args)
        _arguments.apply(args)
        _checked_in = os.getpid()
    logs_entropy = args.entropy_coef != 0 or getattr(args, "observe_training_entropy", False)
    found = _peers.load(_MODULE).get_log_probs_and_entropy(
        logits,
        args=args,
        unconcat_tokens=batch["unconcat_tokens"],
        total_lengths=batch["total_lengths"],
        response_lengths=batch["response_lengths"],
        with_entropy=logs_entropy,
        max_seq_lens=batch.get("max_seq_lens"),
    )
    current = torch.cat(found["log_probs"])
    masks = batch["loss_masks"]
    mask = torch.cat(masks).to(current.device)
    parallel = _peers.load(_PARALLEL).get_parallel_state()
    if parallel.cp.size != 1 or mask.numel() != current.numel():
        raise ValueError(
            "counterweight_rl.hooks.miles.policy_loss needs whole samples on each rank: set "
            "--context-parallel-size 1"
        )
    old, rollout = _old_log_probs(args, batch, current), joined(batch, "rollout_log_probs")
    tensors = {
        "current_log_probs": current,
        "old_log_probs": old,
        "rollout_log_probs": rollout,
        "advantages": torch.cat(batch["advantages"]),
        "response_mask": mask,
        "sequence_lengths": [one.numel() for one in masks],
    }
    pg_loss, kept, metrics = _policy_loss(args, batch, tensors)

    def of_kept(values: torch.Tensor) -> torch.Tensor:
        return sum_of_sample_mean(values * kept)

    loss, entropy = pg_loss, pg_loss.new_zeros(())
    if logs_entropy:
        entropy = of_kept(torch.cat(found["entropy"]))
    if args.entropy_coef != 0:
        loss = pg_loss - args.entropy_coef * entropy
    if current.numel() == 0:
        loss = loss + 0 * logits.sum()  # so that backward reaches every rank's model

    log = {"loss": loss, "pg_loss": pg_loss, "entropy_loss": entropy}
    if args.use_kl_loss:
        log["kl_loss"] = pg_loss.new_tensor(metrics.get("kl_loss", math.nan))
        log["pg_loss"] = pg_loss - args.kl_loss_coef * log["kl_loss"]
    anchor = rollout if old is None else old
    if anchor is not None:
        ratio = _log_ratio(args, current, anchor, masks)
        log["ppo_kl"] = of_kept(-ratio)
        clipped = ratio.exp().clamp(1 - args.eps_clip, 1 + args.eps_clip_high)
        advantages = tensors["advantages"]
        log["pg_clipfrac"] = of_kept((clipped * advantages < ratio.exp() * advantages).float())
    if rollout is not None:
        scored = current if old is None else old
        for name, values in _drift.of_tokens(scored, rollout, mask).items():
            log[f"counterweight_{name}"] = sum_of_sample_mean(values)
    return loss, {name: value.detach().clone() for name, value in log.items()}


def _policy_loss(
    args: Any, batch: Any, tensors: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Returns the sum over samples or tokens, the kept tokens, and the dialect's sums by name."""
    current, masks = tensors["current_log_probs"], batch["loss_masks"]
    tokens = [max(int(one.sum()), 1) for one in masks]
    divisors = None if args.calculate_per_token_loss else divisors_of(batch, tokens)
    method = _arguments.method_of(args)
    if method is not None and has_loss(method):
        aggregation = LossAggregation.SEQ_MEAN_TOKEN_MEAN
        if args.calculate_per_token_loss:
            aggregation = LossAggregation.TOKEN_SUM
        method = with_loss(method, WEIGHED, aggregation)
        result = _service.ask(method, row_divisors=divisors, **tensors)
        # The service divides by the samples that have a token; the trainer by its own count.
        samples = sum(int(one.any()) for one in masks)
        factor = 1 if args.calculate_per_token_loss else samples
        return attach(current, result) * factor, result.keep_mask, {}
    block, kept, given = loss_block(MILES, args), None, None
    if method is not None:
        method = with_loss(method, WEIGHED, LossAggregation.TOKEN_SUM)
        weighed = _service.ask(method, **{**tensors, "current_log_probs": current.detach()})
        kept = weighed.keep_mask
        weights = kept if weighed.weights is None else kept * weighed.weights
        given = None if weighed.weights is None else weights
        # The trainer's losses are proportional to the advantages' size.
        advantages = (tensors["advantages"] * weights).masked_fill(kept == 0, 0.0)
        tensors = {**tensors, "advantages": advantages}
        block["use_tis"] = False
    loss, own, metrics, _ = _megatron_loss.ask(MILES, block, batch, tensors, given_weights=given)
    return loss, own if kept is None else kept, metrics


def _log_ratio(
    args: Any, current: torch.Tensor, anchor: torch.Tensor, masks: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Returns the log ratio that the trainer clips, without gradient; of gspo the sample's mean."""
    ratio = -_drift.of_tokens(current, anchor, torch.cat(list(masks)).to(current.device))["kl"]
    if args.advantage_estimator != "gspo":
        return ratio
    rows = zip(ratio.split([one.numel() for one in masks]), masks, strict=True)
    return torch.cat([(row.sum() / max(int(m.sum()), 1)).expand_as(row) for row, m in rows])


def _old_log_probs(args: Any, batch: Any, current: torch.Tensor) -> torch.Tensor | None:
    """Returns the anchor of the policy's ratio; None: the log-probs of the rollout."""
    if args.use_rollout_logprobs:
        if not batch.get("rollout_log_probs"):
            raise ValueError(MISSING["rollout_log_probs"])
        return None
    old = scored_log_probs(args, batch, current)
    if old is None:
        raise ValueError(MISSING["log_probs"])
    return old


def _check(args: Any) -> None:
    names = ["get_mismatch_metrics"]
    if _arguments.method_of(args) is not None:
        # They belong to the trainer's own loss or correction.
        names += ["use_kl_loss", "use_opsm", "custom_pg_loss_reducer_function_path"]
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name, False)]
    if len(names) > 1 and getattr(args, "custom_tis_function_path", None) not in (None, *_OURS):
        given.append("--custom-tis-function-path")
    if given:
        beside = "" if len(names) == 1 else " with a method"
        raise ValueError(
            f"{' and '.join(given)} cannot be used with counterweight_rl.hooks.miles.policy_loss"
            f"{beside}; use --loss-type policy_loss with --custom-tis-function-path"
        )
