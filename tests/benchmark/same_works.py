"""The works of kernels_bench in torch with the kernels' metrics: pure functions of tensors [B, T],
each of one whole graph, with each preset's default numbers. Each row needs a token.
"""

from __future__ import annotations

import math

import torch
from eager_torch import Metrics
from headline import MAX_K3, MEAN_BOUNDS, TOKEN_BOUNDS, UPPER
from same_metrics import (
    Drift,
    LossParts,
    RuleRows,
    clamped,
    clamped_ratio,
    count,
    drift,
    largest,
    loss_metrics,
    masked_log_ratio,
    positive,
    rule_metrics,
    sample_share,
    smallest,
    total,
    weight_metrics,
)
from torch import Tensor
from work_parts import (
    CLIP,
    DECOUPLED,
    DUAL_CLIP,
    LOSS,
    PREFIX_BOUNDS,
    SEQUENCE_CLIP,
    WEIGHTED_LOSS,
    Answer,
    Work,
    with_gradient,
)


def none(old: Tensor, rollout: Tensor, mask: Tensor) -> Answer:
    return Answer(mask, metrics=drift(old, rollout, mask).metrics)


def truncated_weights(found: Drift, mask: Tensor) -> Answer:
    weights = found.ratio.clamp(max=UPPER)
    high = count(found.ratio > UPPER) / found.tokens
    metrics = found.metrics | weight_metrics(weights, UPPER, high, 0.0, found)
    return Answer(mask, weights * mask, metrics=metrics)


def token_tis(old: Tensor, rollout: Tensor, mask: Tensor) -> Answer:
    return truncated_weights(drift(old, rollout, mask), mask)


def three_rules(old: Tensor, rollout: Tensor, mask: Tensor) -> Answer:
    found = drift(old, rollout, mask)
    n = found.row_tokens
    token_low, token_high, mean_low, mean_high = map(math.log, TOKEN_BOUNDS + MEAN_BOUNDS)

    log_ratio = clamped(found.log_ratio)
    high, low = log_ratio > token_high, log_ratio < token_low
    by_token = RuleRows(log_ratio.sum(-1), high.float().sum(-1), low.float().sum(-1))
    means = by_token.sums / n
    by_mean = RuleRows(by_token.sums, n * (means > mean_high), n * (means < mean_low))
    # k3 is smallest, 0, where the mask is 0.
    k3 = (found.ratio - 1 - log_ratio).amax(-1)
    by_k3 = RuleRows(n * k3, n * (k3 > MAX_K3), torch.zeros_like(n))

    row_stays = (by_mean.high + by_mean.low + by_k3.high) == 0
    keep = mask * (row_stays.unsqueeze(-1) & ~(high | low))
    kept = row_stays * (n - by_token.high - by_token.low)
    extremes = clamped(found.lowest), clamped(found.highest)
    corrected = truncated_weights(found, mask)
    metrics = (
        corrected.metrics
        | rule_metrics("token_ratio", by_token, *extremes, found)
        | rule_metrics("mean_ratio", by_mean, means.amin(), means.amax(), found)
        | rule_metrics("max_k3", by_k3, k3.amin(), k3.amax(), found)
    )
    metrics["kept_token_fraction"] = kept.sum() / found.tokens
    metrics["kept_sequence_fraction"] = (kept > 0).float().mean()
    metrics["touched_sequence_fraction"] = (kept < n).float().mean()
    metrics["kept_effective_sample_size"] = sample_share(corrected.weights * keep, found)
    return corrected._replace(keep=keep, metrics=metrics)


def reinforce_pro(old: Tensor, rollout: Tensor, mask: Tensor) -> Answer:
    found = drift(old, rollout, mask)
    means = found.log_ratio.cumsum(-1) / mask.cumsum(-1).clamp(min=1)
    high = (means > PREFIX_BOUNDS[1]) & (mask != 0)
    low = (means < PREFIX_BOUNDS[0]) & (mask != 0)
    rows = RuleRows((means * mask).sum(-1), high.float().sum(-1), low.float().sum(-1))
    extremes = smallest(means, mask), largest(means, mask)
    metrics = found.metrics | rule_metrics("prefix_mean_ratio", rows, *extremes, found)
    zeroed = metrics["rules/prefix_mean_ratio/dropped_token_fraction"]
    weights = torch.exp(found.log_ratio)
    metrics |= weight_metrics(weights, math.inf, 0.0, zeroed, found)
    kept = torch.where(high | low, 0.0, weights * mask)
    metrics["kept_effective_sample_size"] = sample_share(kept, found)
    return Answer(mask, kept, metrics=metrics)


def ppo_loss(
    current: Tensor, old: Tensor, advantages: Tensor, weights: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The loss and the ratios. Both clips together clamp a ratio by the sign of its advantage."""
    ratio = clamped_ratio(masked_log_ratio(current, old, mask))
    falls = advantages < 0
    lowest = torch.where(falls, 1 - CLIP, 0.0)
    highest = torch.where(falls, DUAL_CLIP, 1 + CLIP)
    values = -advantages * ratio.clamp(lowest, highest)
    return total(values * weights) / total(mask), ratio


def ppo(
    current: Tensor, old: Tensor, advantages: Tensor, weights: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Metrics]:
    """weights: 0 where the mask is."""
    loss, gradient, ratio = with_gradient(ppo_loss, current, old, advantages, weights, mask)
    tokens = total(mask)
    log_ratio = masked_log_ratio(current, old, mask)
    # The ratio is 1 where the mask is 0, and so within all bounds.
    high = (ratio > 1 + CLIP) & (advantages > 0)
    low = (ratio < 1 - CLIP) & (advantages < 0)
    dual = (ratio > DUAL_CLIP) & (advantages < 0)
    slopes = advantages.abs() * ratio * weights
    parts = LossParts(
        count=tokens,
        kl=-total(log_ratio) / tokens,
        ratio_mean=total(ratio * mask) / tokens,
        ratio_min=clamped_ratio(smallest(log_ratio, mask)),
        ratio_max=clamped_ratio(largest(log_ratio, mask)),
        high=count(high) / tokens,
        low=count(low) / tokens,
        dual=count(dual) / tokens,
        clipped_share=total(torch.where(high | low | dual, slopes, 0.0)) / total(slopes),
    )
    return loss, gradient, loss_metrics(loss, gradient, parts)


def ppo_clip(current: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Answer:
    loss, gradient, metrics = ppo(current, old, advantages, mask, mask)
    return Answer(mask, None, loss, gradient, metrics | drift(current, old, mask).metrics)


def token_tis_ppo_clip(
    current: Tensor, old: Tensor, rollout: Tensor, advantages: Tensor, mask: Tensor
) -> Answer:
    corrected = token_tis(old, rollout, mask)
    loss, gradient, metrics = ppo(current, old, advantages, corrected.weights, mask)
    metrics = metrics | corrected.metrics
    metrics["positive_log_probs"] = positive((current, old, rollout), mask)
    return Answer(mask, corrected.weights, loss, gradient, metrics)


def gspo_loss(
    current: Tensor, old: Tensor, advantages: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The loss and the ratio of each row."""
    n = mask.sum(-1)
    ratio = torch.exp(masked_log_ratio(current, old, mask).sum(-1) / n)
    low, high = SEQUENCE_CLIP
    clipped = ratio.clamp(1 - low, 1 + high)
    values = torch.maximum(-advantages * ratio[:, None], -advantages * clipped[:, None])
    return ((values * mask).sum(-1) / n).mean(), ratio


def gspo(current: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Answer:
    loss, gradient, ratio = with_gradient(gspo_loss, current, old, advantages, mask)
    found = drift(current, old, mask)
    n, tokens = found.row_tokens, found.tokens
    # The tokens of a row share its ratio, so that its sums by the advantage's sign suffice.
    rises, falls = (advantages > 0) * mask, (advantages < 0) * mask
    rising, falling = (advantages * rises).sum(-1), -(advantages * falls).sum(-1)
    high, low = ratio > 1 + SEQUENCE_CLIP[1], ratio < 1 - SEQUENCE_CLIP[0]
    lost = high * rising + low * falling
    parts = LossParts(
        count=found.metrics["sequences"],
        kl=found.metrics["kl"],
        ratio_mean=(ratio * n).sum() / tokens,
        ratio_min=ratio.amin(),
        ratio_max=ratio.amax(),
        high=(high * rises.sum(-1)).sum() / tokens,
        low=(low * falls.sum(-1)).sum() / tokens,
        dual=0.0,
        clipped_share=(ratio / n * lost).sum() / (ratio / n * (rising + falling)).sum(),
    )
    metrics = found.metrics | loss_metrics(loss, gradient, parts)
    return Answer(mask, None, loss, gradient, metrics)


SAME_WORKS = (
    Work("none", "same", DECOUPLED, none),
    Work("token_tis", "same", DECOUPLED, token_tis),
    Work("token_tis+3_rules", "same", DECOUPLED, three_rules),
    Work("reinforce_pro", "same", DECOUPLED, reinforce_pro),
    Work("ppo_clip", "same", LOSS, ppo_clip),
    Work("token_tis_ppo_clip", "same", WEIGHTED_LOSS, token_tis_ppo_clip),
    Work("gspo", "same", LOSS, gspo),
)
