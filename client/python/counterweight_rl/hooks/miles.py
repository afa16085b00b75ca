"""miles: slime's hooks, and ``--loss-type custom_loss`` computed by the service.

    --custom-loss-function-path counterweight_rl.hooks.miles.policy_loss

The loss is PPO's clip to ``--eps-clip``, ``--eps-clip-high`` and ``--eps-clip-c``, by samples with
the advantage estimator gspo, or the ``policy_loss`` of ``args.counterweight_method``, with that
method's weights and rules; without a method it is weighted only if ``--use-tis`` is given. It is
reduced as the trainer does: the sum of the samples' means, by ``rollout_mask_sums`` if the batch
has them, or with ``--calculate-per-token-loss`` the sum over tokens. Entropy is the trainer's own.

``start`` is that of ``counterweight_rl.hooks.slime``, and so is ``correct``, which here also takes
context parallelism: every rank of a group gathers the samples' log-probs and corrects them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from counterweight_rl.choices import LossAggregation, LossDenominator, Surrogate
from counterweight_rl.compat import _peers, _service
from counterweight_rl.config import CorrectionConfig, Method, PolicyLoss
from counterweight_rl.hooks import _arguments, slime
from counterweight_rl.hooks._method import with_loss
from counterweight_rl.hooks.slime import drift, start, truncation_of
from counterweight_rl.torch import attach

__all__ = ["correct", "policy_loss", "start"]

_MODULE = "miles.backends.training_utils.loss"
_CONTEXT_PARALLEL = "miles.backends.training_utils.cp_utils"
_PARALLEL = "miles.backends.training_utils.parallel"
# They change the trainer's own loss.
_UNSUPPORTED = (
    *("use_kl_loss", "use_opsm", "get_mismatch_metrics"),
    "custom_pg_loss_reducer_function_path",
)
# miles clamps log ratios before exp, nats.
_CLAMP = 20.0
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
        batch: advantages, log_probs, rollout_log_probs, loss_masks, each a list of [T_i];
            unconcat_tokens, total_lengths, response_lengths; rollout_mask_sums, the divisor of each
            sample. With ``--skip-actor-forward-only`` the current log-probs, detached, are the old
            ones; with ``--use-rollout-logprobs`` rollout_log_probs are.
        logits: [1, T, V]; get the gradient.
        sum_of_sample_mean: The trainer's reduction, for the entropy.

    Returns:
        The loss, and what the trainer logs: loss, pg_loss, entropy_loss, pg_clipfrac, ppo_kl and
        ``counterweight_kl``, ``counterweight_k3``.

    Raises:
        ValueError: An unsupported argument, a dialect as the method, context parallelism, or
            log-probs that the batch lacks.
        InvalidRequestError: See ``counterweight_rl.compat``.
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
    rollout = batch.get("rollout_log_probs")
    result = _service.ask(
        _with_loss(args),
        current_log_probs=current,
        old_log_probs=_old_log_probs(args, batch, current),
        rollout_log_probs=torch.cat(rollout) if rollout else None,
        advantages=torch.cat(batch["advantages"]),
        response_mask=mask,
        sequence_lengths=[one.numel() for one in masks],
        row_divisors=_divisors(args, batch),
    )
    # The service divides by the samples that have a token; the trainer divides by its own count.
    samples = sum(int(one.any()) for one in masks)
    pg_loss = attach(current, result) * (1 if args.calculate_per_token_loss else samples)
    loss, entropy = pg_loss, pg_loss.new_zeros(())
    if logs_entropy:
        entropy = sum_of_sample_mean(torch.cat(found["entropy"]))
    if args.entropy_coef != 0:
        loss = pg_loss - args.entropy_coef * entropy
    if current.numel() == 0:
        loss = loss + 0 * logits.sum()  # so that backward reaches every rank's model

    # The trainer divides what it logs by this count.
    tokens = [max(int(one.sum()), 1) for one in masks]
    count = sum(tokens) if args.calculate_per_token_loss else len(masks)
    means = {
        "pg_clipfrac": "loss/clip_fraction",
        "ppo_kl": "loss/ppo_kl",
        "counterweight_kl": "kl",
        "counterweight_k3": "k3",
    }
    log = {"loss": loss, "pg_loss": pg_loss, "entropy_loss": entropy}
    for name, metric in means.items():
        log[name] = pg_loss.new_tensor(drift(result, metric) * count)
    return loss, {name: value.detach().clone() for name, value in log.items()}


def _with_loss(args: Any) -> Method:
    method = _arguments.method_of(args)
    if method is None:
        method = truncation_of(args) if args.use_tis else CorrectionConfig()
    loss = PolicyLoss(
        surrogate=Surrogate.GSPO if args.advantage_estimator == "gspo" else Surrogate.PPO_CLIP,
        aggregation=LossAggregation.TOKEN_SUM,
        denominator=LossDenominator.ORIGINAL,
        clip_low=args.eps_clip,
        clip_high=args.eps_clip_high,
        dual_clip=getattr(args, "eps_clip_c", None),
        log_ratio_clamp=_CLAMP,
    )
    aggregation = LossAggregation.SEQ_MEAN_TOKEN_MEAN
    if args.calculate_per_token_loss:
        aggregation = LossAggregation.TOKEN_SUM
    return with_loss(method, loss, aggregation)


def _old_log_probs(args: Any, batch: Any, current: torch.Tensor) -> torch.Tensor | None:
    """Returns the anchor of the policy's ratio; None: the log-probs of the rollout."""
    if args.use_rollout_logprobs:
        if not batch.get("rollout_log_probs"):
            raise ValueError("--use-rollout-logprobs needs rollout_log_probs in the batch")
        return None
    if getattr(args, "skip_actor_forward_only", False):
        return current.detach()
    if not batch.get("log_probs"):
        raise ValueError(
            "the batch has no log_probs of the old policy: let the trainer compute them, or set "
            "--skip-actor-forward-only or --use-rollout-logprobs"
        )
    return torch.cat(batch["log_probs"])


def _divisors(args: Any, batch: Any) -> list[float] | None:
    """Returns each sample's divisor; None: its own tokens, or no mean of samples."""
    given = batch.get("rollout_mask_sums")
    if given is None or args.calculate_per_token_loss:
        return None
    # A tensor is read at once, because each read of a GPU waits for it.
    given = given.tolist() if isinstance(given, torch.Tensor) else given
    divisors = [max(float(one), 1.0) for one in given]
    own = [max(int(mask.sum()), 1) for mask in batch["loss_masks"]]
    return None if divisors == own else divisors


def _check(args: Any) -> None:
    given = [f"--{name.replace('_', '-')}" for name in _UNSUPPORTED if getattr(args, name, False)]
    custom = getattr(args, "custom_tis_function_path", None)
    if args.use_tis and custom and custom not in _OURS:
        given.append("--custom-tis-function-path")
    if args.use_tis and args.use_rollout_logprobs:
        given.append("--use-rollout-logprobs with --use-tis")
    if given:
        raise ValueError(
            f"{' and '.join(given)} cannot be used with counterweight_rl.hooks.miles.policy_loss; "
            "use --loss-type policy_loss with --custom-tis-function-path"
        )
