"""Token-level methods as functions of plain torch operations, which ``torch.fx`` can trace.

Formulas and branches are those of the service (kernels/surrogates/); the arithmetic is torch's, in
the dtype of the tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from counterweight_rl.choices import Bound, Level, RatioSource, Surrogate
from counterweight_rl.config import CorrectionConfig, ImportanceWeight, PolicyLoss

Traceable: TypeAlias = Callable[..., tuple[torch.Tensor, Mapping[str, torch.Tensor]]]

SURROGATES = (
    *(Surrogate.IMPORTANCE_SAMPLING, Surrogate.PPO_CLIP, Surrogate.CISPO),
    *(Surrogate.DRO, Surrogate.REINFORCE),
)


def with_bounds(
    name: str, config: CorrectionConfig, parameters: Mapping[str, float | str]
) -> CorrectionConfig:
    """Returns a preset's config with other bounds of its weights.

    Raises:
        ValueError: A parameter is no bound of a weight.
    """
    weight = config.importance_weight
    for parameter in parameters:
        if weight is None or parameter not in ("lower", "upper"):
            raise ValueError(
                f"{name} cannot be traced: its {parameter} is no bound of a token's weight; use "
                "policy_loss"
            )
    if weight is None:
        return config
    bounds: dict[str, Any] = dict(parameters)
    weight = dataclasses.replace(weight, **bounds)
    return dataclasses.replace(config, importance_weight=weight)


def function_of(config: CorrectionConfig, *, with_old: bool) -> Traceable:
    """Returns the function; its loss is the sum over a datum's tokens, whatever the aggregation.

    Raises:
        ValueError: The method needs more than the token itself.
    """
    weight, loss = config.importance_weight, config.policy_loss
    assert loss is not None  # the hook adds one
    _refuse(config, loss)

    def of_tokens(
        logprobs: torch.Tensor,
        sampler: torch.Tensor,
        old: torch.Tensor,
        advantages: torch.Tensor,
        mask: torch.Tensor,
    ) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        counts = mask != 0
        current = torch.where(counts, logprobs, 0.0)
        advantages = torch.where(counts, advantages, 0.0)
        ratios = {
            RatioSource.CURRENT_OLD: torch.where(counts, logprobs - old, 0.0),
            RatioSource.CURRENT_ROLLOUT: torch.where(counts, logprobs - sampler, 0.0),
            RatioSource.OLD_ROLLOUT: torch.where(counts, old - sampler, 0.0),
        }
        source = RatioSource(loss.ratio_source or RatioSource.CURRENT_OLD)
        losses = _loss(loss, ratios[source], current, advantages)
        if weight is not None:
            losses = losses * _weight(weight, ratios[RatioSource(weight.ratio_source)].detach())
        drift = ratios[RatioSource.OLD_ROLLOUT].detach()
        return losses.sum(), {
            "custom/counterweight_tokens:sum": counts.to(losses.dtype).sum(),
            "custom/counterweight_kl:sum": (-drift).sum(),
            "custom/counterweight_k3:sum": (torch.expm1(drift) - drift).sum(),
        }

    # The names of the parameters are those of a datum's inputs.
    def steps(
        logprobs: torch.Tensor,
        sampler_logprobs: torch.Tensor,
        old_logprobs: torch.Tensor,
        advantages: torch.Tensor,
        mask: torch.Tensor,
    ) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        return of_tokens(logprobs, sampler_logprobs, old_logprobs, advantages, mask)

    def one_step(
        logprobs: torch.Tensor,
        sampler_logprobs: torch.Tensor,
        advantages: torch.Tensor,
        mask: torch.Tensor,
    ) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        return of_tokens(logprobs, sampler_logprobs, logprobs.detach(), advantages, mask)

    function: Any = steps if with_old else one_step
    function.__name__ = function.__qualname__ = f"counterweight_{Surrogate(loss.surrogate).value}"
    return function  # type: ignore[no-any-return]


def _refuse(config: CorrectionConfig, loss: PolicyLoss) -> None:
    weight = config.importance_weight
    reason = None
    if config.rules:
        reason = "rejection rules need whole sequences, and answers that name their tokens"
    elif config.sequence_filter is not None:
        reason = "a sequence_filter needs whole sequences"
    elif config.kl_penalty is not None:
        reason = "a kl_penalty needs the log-probs of a reference policy"
    elif loss.surrogate not in SURROGATES:
        names = ", ".join(SURROGATES)
        reason = f"of the surrogates only {names} are functions of a token; got {loss.surrogate}"
    elif weight is not None and weight.level != Level.TOKEN:
        reason = f"weights of level {weight.level} need the whole sequence"
    elif weight is not None and weight.normalize:
        reason = "normalized weights need the whole batch"
    elif weight is not None and (
        weight.upper_calm_quantile is not None or isinstance(weight.upper, str)
    ):
        reason = "a server knows the bound of a run's calm steps"
    if reason is not None:
        raise ValueError(f"the method cannot be traced: {reason}; use policy_loss")


def _weight(of: ImportanceWeight, ratio: torch.Tensor) -> torch.Tensor:
    for clamp in (of.token_clamp, of.aggregate_clamp):
        if clamp is not None:
            ratio = torch.clamp(ratio, -clamp, clamp)
    weight = torch.exp(ratio)
    if of.bound == Bound.TRUNCATE:
        return torch.clamp(weight, of.lower, of.upper)
    if of.bound == Bound.MASK:
        if of.lower is not None:
            weight = torch.where(weight < of.lower, 0.0, weight)
        if of.upper is not None:
            weight = torch.where(weight > of.upper, 0.0, weight)
    return weight


def _loss(
    of: PolicyLoss, log_ratio: torch.Tensor, current: torch.Tensor, advantages: torch.Tensor
) -> torch.Tensor:
    """Returns [T], the tokens' losses; masked tokens have the log ratio and advantage 0."""
    if of.surrogate == Surrogate.REINFORCE:
        return -advantages * current
    if of.surrogate == Surrogate.DRO:
        assert of.beta is not None  # which the server requires
        return 0.5 * of.beta * log_ratio * log_ratio - advantages * current
    if of.log_ratio_clamp is not None:
        log_ratio = torch.clamp(log_ratio, -of.log_ratio_clamp, of.log_ratio_clamp)
    ratio = torch.exp(log_ratio)
    if of.surrogate == Surrogate.IMPORTANCE_SAMPLING:
        return -advantages * ratio
    # The server requires both.
    assert of.clip_low is not None
    assert of.clip_high is not None
    clipped = torch.clamp(ratio, 1.0 - of.clip_low, 1.0 + of.clip_high)
    if of.surrogate == Surrogate.CISPO:
        return -advantages * clipped.detach() * current
    if of.ratio_cap is not None:
        ratio = torch.clamp(ratio, max=of.ratio_cap)
    losses = torch.maximum(-advantages * ratio, -advantages * clipped)
    if of.dual_clip is None:
        return losses
    return torch.where(advantages < 0, torch.minimum(losses, -advantages * of.dual_clip), losses)
