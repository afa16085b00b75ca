"""Metrics of single tokens of NeMo-RL's loss, and the divisors of all."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

_EPSILON = 1e-8
"""NeMo-RL adds it to a divisor."""

_KL: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "k1": lambda ratio: -ratio,
    "k2": lambda ratio: ratio.square() / 2,
    "k3": lambda ratio: ratio.expm1() - ratio,
}
_OF_TOKENS = (
    *("probs_ratio", "probs_ratio_clamped", "token_mult_prob_error", "gen_kl_error"),
    *("policy_kl_error", "js_divergence_error", "approx_entropy"),
)
_OF_NONE = (
    *("num_valid_samples", "positive_nll_loss", "probs_ratio_min", "probs_ratio_max"),
    *("probs_ratio_clamped_min", "probs_ratio_clamped_max"),
)


@torch.no_grad()
def of_tokens(
    current: torch.Tensor,
    old: torch.Tensor,
    rollout: torch.Tensor,
    mask: torch.Tensor,
    tokens: float,
    *,
    kl_type: str,
    is_ratio: bool,
) -> dict[str, float]:
    """Returns the metrics that an answer lacks where tensors lie on a device.

    Args:
        current: [B, T] nats, like the next two; where the mask is 0 they are not read.
        old: Of the policy before the step.
        rollout: Of the policy that sampled.
        mask: [B, T], each 0 or 1.
        tokens: The divisor.
        kl_type: "k1", "k2" or "k3", the estimator of policy_kl_error.
        is_ratio: Whether the surrogate has a ratio, which the service's answer then holds; else
            NeMo-RL reports the log-probs under its names.
    """
    kept = mask.bool()
    current, old, rollout = (one[kept].double() for one in (current, old, rollout))
    mixture = torch.logaddexp(old, rollout) - math.log(2)
    own = {
        "token_mult_prob_error": (old - rollout).abs().exp(),
        "policy_kl_error": _KL[kl_type](rollout - old),
        "js_divergence_error": (_KL["k3"](old - mixture) + _KL["k3"](rollout - mixture)) / 2,
        "approx_entropy": -(current - rollout).exp() * current,
    }
    extrema = {}
    if not is_ratio:
        own["probs_ratio"] = own["probs_ratio_clamped"] = current
        low, high = (current.min(), current.max()) if kept.any() else (math.inf, -math.inf)
        for name in ("probs_ratio", "probs_ratio_clamped"):
            extrema.update({f"{name}_min": float(low), f"{name}_max": float(high)})
    sums = {name: values.sum().item() for name, values in own.items()}
    return {**{name: one / (tokens + _EPSILON) for name, one in sums.items()}, **extrema}


def divisors(*, by_token: bool, by_sequence: bool, truncation: str | None) -> dict[str, str]:
    """Returns what each metric is divided by: "tokens", "sequences" or "none".

    Args:
        by_token: Whether the loss is a mean over tokens.
        by_sequence: Whether the ratios are of sequences.
        truncation: truncated_importance_sampling_type.
    """
    of_loss = "tokens" if by_token else "sequences"
    found = {
        **dict.fromkeys(("loss", "kl_penalty"), of_loss),
        **dict.fromkeys(_OF_TOKENS, "tokens"),
        **dict.fromkeys(_OF_NONE, "none"),
        "sampling_importance_ratio": "sequences" if by_sequence else "tokens",
    }
    if truncation is not None:
        found["is_oob_ratio"] = "sequences" if truncation == "seq-mask-tis" else "tokens"
    return found
