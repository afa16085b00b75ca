"""The works of kernels_bench in torch: pure functions of tensors [B, T], each of one whole graph.

Formulas and metrics are verl's, as in eager_torch.py, with each preset's default numbers. Metrics
stay tensors; they are like those of the kernels, not equal to them. Each row needs a token.
WORKS also has the works of same_works.py with the kernels' metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import eager_torch
import torch
from eager_torch import CLAMP, Metrics, Rule, masked_mean
from same_works import SAME_WORKS
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

Loss = tuple[Tensor, Metrics]


def largest(x: Tensor, valid: Tensor) -> Tensor:
    return torch.where(valid, x, -torch.inf).amax()


def smallest(x: Tensor, valid: Tensor) -> Tensor:
    return torch.where(valid, x, torch.inf).amin()


# Replacements for names of eager_torch: boolean indexing and conversions to float break the graph.
WHOLE_GRAPH: dict[str, Callable[..., Any]] = {
    "number": lambda x: x,
    "largest": largest,
    "smallest": smallest,
    "rows_with_tokens": lambda x, valid: x,
}


def none(old: Tensor, rollout: Tensor, mask: Tensor) -> Answer:
    return Answer(mask, metrics=eager_torch.off_policy(old, rollout, mask))


def token_tis(old: Tensor, rollout: Tensor, mask: Tensor) -> Answer:
    weights, metrics = eager_torch.importance_weights(old - rollout, mask)
    return Answer(mask, weights, metrics=metrics | eager_torch.off_policy(old, rollout, mask))


def three_rules(old: Tensor, rollout: Tensor, mask: Tensor) -> Answer:
    weights, keep, metrics = eager_torch.correct(old, rollout, mask)
    return Answer(keep, weights, metrics=metrics)


def prefix_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Each token's mean over the tokens up to and with it."""
    return (x * mask).cumsum(-1) / mask.cumsum(-1).clamp(min=1)


PREFIX_RULE = Rule("prefix_mean_k1", prefix_mean, *PREFIX_BOUNDS)


def reinforce_pro(old: Tensor, rollout: Tensor, mask: Tensor) -> Answer:
    log_ratio = old - rollout
    raw = torch.exp(log_ratio) * mask
    means = PREFIX_RULE.statistic(log_ratio, mask)
    inside = ((means >= PREFIX_RULE.lower) & (means <= PREFIX_RULE.upper)).float()
    weights = raw * inside
    metrics = eager_torch.weight_metrics(weights, raw, mask)
    metrics |= eager_torch.rule_metrics(PREFIX_RULE, means, False, inside, mask)
    return Answer(mask, weights, metrics=metrics | eager_torch.off_policy(old, rollout, mask))


class PpoTerms(NamedTuple):
    """PPO's value of each token with dual clip, and the terms that its metrics compare."""

    values: Tensor
    log_ratio: Tensor
    plain: Tensor
    clipped: Tensor
    worse: Tensor


def ppo_terms(current: Tensor, old: Tensor, advantages: Tensor) -> PpoTerms:
    log_ratio = (current - old).clamp(-CLAMP, CLAMP)
    ratio = torch.exp(log_ratio)
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - CLIP, 1 + CLIP)
    worse = torch.maximum(plain, clipped)
    bounded = torch.minimum(-advantages * DUAL_CLIP, worse)
    values = torch.where(advantages < 0, bounded, worse)
    return PpoTerms(values, log_ratio, plain, clipped, worse)


def ppo_metrics(terms: PpoTerms, advantages: Tensor, mask: Tensor) -> Metrics:
    """Those of verl's compute_policy_loss."""
    # Without detaching, autograd would compute a gradient of each metric.
    _, log_ratio, plain, clipped, worse = (x.detach() for x in terms)
    return {
        "ppo_kl": eager_torch.number(masked_mean(-log_ratio, mask)),
        "pg_clipfrac": eager_torch.number(masked_mean((clipped > plain).float(), mask)),
        "pg_clipfrac_lower": eager_torch.number(
            masked_mean((worse > -advantages * DUAL_CLIP).float() * (advantages < 0), mask)
        ),
    }


def ppo_loss(current: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Loss:
    terms = ppo_terms(current, old, advantages)
    return masked_mean(terms.values, mask), ppo_metrics(terms, advantages, mask)


def gspo_loss(current: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Loss:
    log_ratio = current - old
    ratio = torch.exp(masked_mean(log_ratio, mask, -1)).unsqueeze(-1)
    low, high = SEQUENCE_CLIP
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - low, 1 + high)
    loss = masked_mean(torch.maximum(plain, clipped), mask, -1).mean()
    return loss, {
        "ppo_kl": eager_torch.number(masked_mean(-log_ratio.detach(), mask)),
        "pg_clipfrac": eager_torch.number(
            masked_mean((clipped.detach() > plain.detach()).float(), mask)
        ),
    }


def loss_alone(loss_of: Callable[..., Loss]) -> Callable[..., Answer]:
    """A loss without weights; its drift is that of current against old log-probs."""

    def answer(current: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Answer:
        loss, gradient, metrics = with_gradient(loss_of, current, old, advantages, mask)
        metrics = metrics | eager_torch.off_policy(current, old, mask)
        return Answer(mask, None, loss, gradient, metrics)

    return answer


def token_tis_ppo_clip(
    current: Tensor, old: Tensor, rollout: Tensor, advantages: Tensor, mask: Tensor
) -> Answer:
    corrected = token_tis(old, rollout, mask)

    def weighted_loss(current: Tensor) -> Loss:
        terms = ppo_terms(current, old, advantages)
        loss = masked_mean(terms.values * corrected.weights, mask)
        return loss, ppo_metrics(terms, advantages, mask)

    loss, gradient, metrics = with_gradient(weighted_loss, current)
    return Answer(mask, corrected.weights, loss, gradient, metrics | (corrected.metrics or {}))


def without_metrics(answer: Callable[..., Answer]) -> Callable[..., Answer]:
    """The compiler leaves out what is not returned."""
    return lambda *inputs: answer(*inputs)._replace(metrics=None)


WORKS = (
    Work("none", "verl", DECOUPLED, none),
    Work("token_tis", "verl", DECOUPLED, token_tis),
    Work("token_tis, no metrics", None, DECOUPLED, without_metrics(token_tis)),
    Work("token_tis+3_rules", "verl", DECOUPLED, three_rules),
    Work("token_tis+3_rules, no metrics", None, DECOUPLED, without_metrics(three_rules)),
    Work("reinforce_pro", "verl", DECOUPLED, reinforce_pro),
    Work("ppo_clip", "verl", LOSS, loss_alone(ppo_loss)),
    Work("token_tis_ppo_clip", "verl", WEIGHTED_LOSS, token_tis_ppo_clip),
    Work(
        "token_tis_ppo_clip, no metrics", None, WEIGHTED_LOSS, without_metrics(token_tis_ppo_clip)
    ),
    Work("gspo", "verl", LOSS, loss_alone(gspo_loss)),
    *SAME_WORKS,
)
