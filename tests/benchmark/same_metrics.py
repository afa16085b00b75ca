"""The metrics of the kernels in torch, by the kernels' names and formulas, without the histograms.

Functions of tensors [B, T] for same_works.py, written for torch.compile: sums go over rows first, so
that one loop over a row computes them all, and metrics share sums and extrema where one follows
from another. Each row needs a token.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from eager_torch import CLAMP, Metrics
from torch import Tensor

KEPT_ALL = {
    "kept_token_fraction": 1.0,
    "kept_sequence_fraction": 1.0,
    "touched_sequence_fraction": 0.0,
}


def total(x: Tensor) -> Tensor:
    return x.sum(-1).sum()


def count(where: Tensor) -> Tensor:
    return total(where.float())


def positive(log_probs: tuple[Tensor, ...], mask: Tensor) -> Tensor:
    """The tokens where any of the log-probs is above 0."""
    return count((torch.stack(log_probs).amax(0) > 0) & (mask != 0))


def smallest(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask != 0, x, torch.inf).amin(-1).amin()


def largest(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask != 0, x, -torch.inf).amax(-1).amax()


def deviation(mean: Tensor, mean_of_squares: Tensor) -> Tensor:
    return (mean_of_squares - mean * mean).clamp(min=0).sqrt()


def masked_log_ratio(numerator: Tensor, denominator: Tensor, mask: Tensor) -> Tensor:
    """0 where the mask is, so that sums of functions that are 0 at 0 need no mask."""
    return torch.where(mask != 0, numerator - denominator, 0.0)


def clamped(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-CLAMP, CLAMP)


def clamped_ratio(log_ratio: Tensor) -> Tensor:
    """Clamps after exp, to share exp with metrics that do not clamp."""
    return torch.exp(log_ratio).clamp(math.exp(-CLAMP), math.exp(CLAMP))


class Drift(NamedTuple):
    """The drift's metrics, and what other metrics are computed from."""

    log_ratio: Tensor  # 0 where the mask is
    ratio: Tensor  # clamped, 1 where the mask is 0
    row_tokens: Tensor
    tokens: Tensor
    lowest: Tensor  # log ratio of a token
    highest: Tensor
    metrics: Metrics


def drift(numerator: Tensor, denominator: Tensor, mask: Tensor) -> Drift:
    n = mask.sum(-1)
    tokens = n.sum()
    log_ratio = masked_log_ratio(numerator, denominator, mask)
    unclamped, ratio = torch.exp(log_ratio), clamped_ratio(log_ratio)
    row_sums = log_ratio.sum(-1)
    mean, mean_of_squares = row_sums.sum() / tokens, total(log_ratio * log_ratio) / tokens
    denominator_log_ppl = -(denominator * mask).sum(-1) / n
    difference = -row_sums / n
    lowest, highest = smallest(log_ratio, mask), largest(log_ratio, mask)
    metrics = {
        "tokens": tokens,
        "sequences": (n > 0).sum(),
        "non_finite_tokens": count(~torch.isfinite(log_ratio)),
        "positive_log_probs": positive((numerator, denominator), mask),
        "kl": -mean,
        "k2": mean_of_squares / 2,
        "k3": total(unclamped - 1 - log_ratio) / tokens,
        "chi2_token": total(ratio * ratio - 1) / tokens,
        "chi2_sequence": torch.expm1(2 * clamped(row_sums)).mean(),
        "log_ratio_mean": mean,
        "log_ratio_abs_mean": total(log_ratio.abs()) / tokens,
        "log_ratio_std": deviation(mean, mean_of_squares),
        "log_ratio_min": lowest,
        "log_ratio_max": highest,
        "sequence_log_ratio_min": row_sums.amin(),
        "sequence_log_ratio_max": row_sums.amax(),
        "ppl_ratio": torch.exp(difference).mean(),
        "log_ppl_difference_mean": difference.mean(),
        "log_ppl_difference_abs_mean": difference.abs().mean(),
        "numerator_ppl": torch.exp(denominator_log_ppl + difference).mean(),
        "denominator_ppl": torch.exp(denominator_log_ppl).mean(),
    }
    return Drift(log_ratio, ratio, n, tokens, lowest, highest, metrics | KEPT_ALL)


def weight_metrics(
    weights: Tensor, upper: float, high: Tensor | float, zero: Tensor | float, found: Drift
) -> Metrics:
    """weights: before a rule zeroes any, growing with the log ratio, 1 where the mask is 0.

    The returned weights would be read from memory again, as they are an output. upper: largest
    weight; high, zero: fractions of tokens.
    """
    mean = 1 + total(weights - 1) / found.tokens
    mean_of_squares = 1 + total(weights * weights - 1) / found.tokens
    return {
        "weight_mean": mean,
        "weight_std": deviation(mean, mean_of_squares),
        "weight_min": torch.exp(found.lowest).clamp(max=upper),
        "weight_max": torch.exp(found.highest).clamp(max=upper),
        "effective_sample_size": mean * mean / mean_of_squares,
        # Where no rule drops or zeroes a token; works with rules replace it.
        "kept_effective_sample_size": mean * mean / mean_of_squares,
        "weight_clipped_high_fraction": high,
        "weight_clipped_low_fraction": 0.0,
        "weight_zero_fraction": zero,
        "weight_normalizer": 1.0,
    }


def sample_share(kept_weights: Tensor, found: Drift) -> Tensor:
    """The effective sample size of tokens that stay, as a share of all. kept_weights: else 0."""
    summed = total(kept_weights)
    return summed * summed / (found.tokens * total(kept_weights * kept_weights))


class RuleRows(NamedTuple):
    """A rule's sums over each row: of its statistic, and of the tokens beyond its bounds."""

    sums: Tensor
    high: Tensor
    low: Tensor


def rule_metrics(
    name: str, rows: RuleRows, lowest: Tensor, highest: Tensor, found: Drift
) -> Metrics:
    dropped = rows.high + rows.low
    values = {
        "mean": rows.sums.sum() / found.tokens,
        "min": lowest,
        "max": highest,
        "sequence_mean": (rows.sums / found.row_tokens).mean(),
        "high_fraction": rows.high.sum() / found.tokens,
        "low_fraction": rows.low.sum() / found.tokens,
        "dropped_token_fraction": dropped.sum() / found.tokens,
        "dropped_sequence_fraction": (dropped > 0).float().mean(),
    }
    return {f"rules/{name}/{metric}": value for metric, value in values.items()}


class LossParts(NamedTuple):
    """Parts of a loss's metrics; fractions are of tokens."""

    count: Tensor
    kl: Tensor
    ratio_mean: Tensor
    ratio_min: Tensor
    ratio_max: Tensor
    high: Tensor
    low: Tensor
    dual: Tensor | float
    clipped_share: Tensor


def loss_metrics(loss: Tensor, gradient: Tensor, parts: LossParts) -> Metrics:
    # The ratio is not capped, so that the loss takes the clipped branch exactly beyond the bounds.
    clipped = parts.high + parts.low
    return {
        "loss/policy": loss,
        "loss/count": parts.count,
        "loss/ppo_kl": parts.kl,
        "loss/ratio_mean": parts.ratio_mean,
        "loss/ratio_min": parts.ratio_min,
        "loss/ratio_max": parts.ratio_max,
        "loss/clip_fraction": clipped,
        "loss/clip_high_fraction": parts.high,
        "loss/clip_low_fraction": parts.low,
        "loss/clip_region_fraction": clipped,
        "loss/dual_clip_fraction": parts.dual,
        "loss/gradient_norm": total(gradient * gradient).sqrt(),
        "loss/gradient_clipped_share": parts.clipped_share,
        "loss/gradient_rejected_share": 0.0,
    }
