"""Metrics of single tokens of slime's and of miles' policy loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from counterweight_rl.compat._megatron_blocks import Trainer

Reduction = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Tokens:
    """The samples' tokens one after another, [N] each, log-probs in nats.

    Attributes:
        current: Of the policy being trained.
        anchor: Of the policy that its ratio is to.
        scored: Of the training policy at the step's beginning; None: not there.
        rollout: Of the policy that sampled; None: not there.
        advantages: Of the batch, unchanged.
        mask: Each 0 or 1.
        masks: The same, [T_i] for each sample.
    """

    current: torch.Tensor
    anchor: torch.Tensor
    scored: torch.Tensor | None
    rollout: torch.Tensor | None
    advantages: torch.Tensor
    mask: torch.Tensor
    masks: Sequence[torch.Tensor]

    def difference(self, of: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Returns of - other in float32, 0 where the mask is 0."""
        return torch.where(self.mask.bool(), (of - other).detach(), 0.0).float()

    def row_means(self, values: torch.Tensor) -> torch.Tensor:
        """Returns each sample's mean at all of its positions; values are 0 where its mask is."""
        rows = zip(values.split([one.numel() for one in self.masks]), self.masks, strict=True)
        return torch.cat([(row.sum() / max(int(m.sum()), 1)).expand_as(row) for row, m in rows])


@torch.no_grad()
def of_policy(
    trainer: Trainer, args: Any, tokens: Tokens, of_kept: Reduction, of_all: Reduction
) -> dict[str, torch.Tensor]:
    """Returns the metrics of the policy's ratio.

    Args:
        trainer: The system.
        args: Its arguments.
        tokens: The micro-batch.
        of_kept: The trainer's reduction over the tokens that are kept.
        of_all: The same over all.
    """
    log_ratio, log = tokens.difference(tokens.current, tokens.anchor), {}
    gain = torch.where(tokens.mask.bool(), tokens.advantages, 0.0)
    if args.use_opsm:
        out = (tokens.advantages < 0) & (-tokens.row_means(log_ratio) > args.opsm_delta)
        log["opsm_clipfrac"] = _sum_of_shares(out.float(), tokens.masks)
    if args.advantage_estimator == "gspo":
        log_ratio = tokens.row_means(log_ratio) * tokens.mask
    bounded = log_ratio
    if trainer.largest is not None:
        bounded = log_ratio.clamp(-trainer.largest, trainer.largest)
        log["ess_ratio"] = _ess(bounded.exp(), tokens.masks, args.calculate_per_token_loss)
    ratio = bounded.exp()
    clipped = ratio.clamp(1 - args.eps_clip, 1 + args.eps_clip_high)
    is_clipped = clipped * gain < ratio * gain
    if args.advantage_estimator == "cispo":
        is_clipped = clipped != ratio
    log["ppo_kl"], log["pg_clipfrac"] = of_kept(-log_ratio), of_kept(is_clipped.float())
    if args.use_tis or args.get_mismatch_metrics:
        log["ois"] = of_all(log_ratio.exp())
    return log


@torch.no_grad()
def of_drift(
    trainer: Trainer, args: Any, tokens: Tokens, of_kept: Reduction
) -> dict[str, torch.Tensor]:
    """Returns how far the trainer is from the policy that sampled; nothing without log-probs."""
    if tokens.rollout is None:
        return {}
    is_slimes = args.use_rollout_logprobs and trainer.largest is None
    compared = tokens.current if is_slimes else tokens.anchor
    log_ratio = tokens.difference(compared, tokens.rollout)
    log = {"train_rollout_logprob_abs_diff": of_kept(log_ratio.abs())}
    if trainer.largest is not None:
        bounded = log_ratio.clamp(-trainer.largest, trainer.largest)
        log["train_rollout_kl"] = of_kept((bounded.expm1() - bounded).clamp(-10, 10))
    return log


def of_tis(
    block: Mapping[str, Any], log_ratio: torch.Tensor, mask: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Returns the metrics of truncation or IcePop, of each token.

    Args:
        block: The dialect's.
        log_ratio: [N] nats, training policy - the policy that sampled, 0 where the mask is 0.
        mask: [N], each 0 or 1.
    """
    ratio = log_ratio.exp()
    outside = (ratio < block.get("tis_clip_low", 0.0)) | (ratio > block["tis_clip"])
    return {
        "tis": ratio,
        "tis_clipfrac": (outside & mask.bool()).to(ratio.dtype),
        "tis_abs": (ratio - 1).abs(),
    }


def of_mis(log_ratio: torch.Tensor, weights: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Returns those of MIS; ``weights``: [N], or None where it has none."""
    own = {"kl": -log_ratio, "k3_kl": log_ratio.expm1() - log_ratio}
    return own if weights is None else {**own, "is_ratio_mean_final": weights}


def _sum_of_shares(values: torch.Tensor, masks: Sequence[torch.Tensor]) -> torch.Tensor:
    total = values.new_zeros(())
    for row, mask in zip(values.split([one.numel() for one in masks]), masks, strict=True):
        total = total + row.sum() / mask.sum().clamp(min=1)
    return total


def _ess(ratio: torch.Tensor, masks: Sequence[torch.Tensor], by_token: bool) -> torch.Tensor:
    """Returns the sum of the samples' effective sizes over their tokens, or times these."""
    total = ratio.new_zeros(())
    for row, mask in zip(ratio.split([one.numel() for one in masks]), masks, strict=True):
        weights = row * mask.to(row.device)
        tokens = mask.sum().clamp(min=1).to(row.device, row.dtype)
        share = weights.sum().square() / (tokens * weights.square().sum().clamp(min=1e-8))
        total = total + (share * tokens if by_token else share)
    return total
