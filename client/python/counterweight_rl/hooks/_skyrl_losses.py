"""SkyRL's policy losses by the service; registered by ``counterweight_rl.hooks.skyrl``.

SkyRL sends registered functions to its workers by pickle. These are found by their module, which
registers nothing when a worker imports it.
"""

from __future__ import annotations

from typing import Any

import torch

from counterweight_rl.compat import _config, _service
from counterweight_rl.compat import skyrl as _compat
from counterweight_rl.dialect_fields import FIELDS

# Losses proportional to the advantages' size, which may therefore be scaled.
NAMES = (
    *("regular", "dual_clip", "gspo", "sapo", "cispo"),
    *("rollout_is", "dppo", "importance_sampling"),
)
_UNCORRECTED = ("importance_sampling",)
# Those of cispo since SkyRL 0.4.0; the dialect answers with them where the release has them.
_CISPO_RATIOS = tuple(f"cispo/ratio_{name}" for name in ("mean", "clamped_mean", "max", "min"))

_SCALARS = ("eps_clip_low", "eps_clip_high", "clip_ratio_c")
_GROUPS = ("sapo", "cispo", "dppo")
_CORRECTION = "off_policy_correction"


def policy_loss(
    loss: str,
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    config: Any,
    loss_mask: torch.Tensor | None = None,
    rollout_logprobs: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns a loss of SkyRL and its metrics.

    Args:
        loss: One of ``NAMES``.
        log_probs: [B, T] nats; the policy being trained, which gets the gradient.
        old_log_probs: [B, T] nats.
        advantages: [B, T], which SkyRL has divided by the counts of ``loss_reduction``.
        config: SkyRL's AlgorithmConfig.
        loss_mask: [B, T], each 0 or 1. None: every token counts.
        rollout_logprobs: [B, T] nats, of the policy that sampled. None: no correction.

    Raises:
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    if loss_mask is None:
        loss_mask = torch.ones_like(log_probs, dtype=torch.bool)
    block = _block(loss, config)
    lacks_rollout = False
    if rollout_logprobs is None:
        lacks_rollout = bool(_compat.metric_names(block.pop(_CORRECTION, {})))
    own = "importance_ratio" if loss in _UNCORRECTED else "clip_ratio"
    value, metrics = _service.policy_loss(
        "skyrl",
        block,
        current_log_probs=log_probs,
        old_log_probs=old_log_probs,
        rollout_log_probs=rollout_logprobs,
        advantages=advantages,
        response_mask=loss_mask,
        own_warning="SkyRL recommends loss_reduction",
        uncorrected=_compat.NO_ROLLOUT if lacks_rollout else None,
    )
    # SkyRL reduces them over ranks by their order.
    names = [own, *(name for name in _CISPO_RATIOS if name in metrics)]
    names += _compat.metric_names(block.get(_CORRECTION, {}))
    # The block divides by the rows; SkyRL's losses are sums.
    return value * log_probs.shape[0], {name: metrics[name] for name in names}


def _block(loss: str, config: Any) -> dict[str, Any]:
    block: dict[str, Any] = _config.given(config, _SCALARS)
    for name in _GROUPS:
        group = _config.get(config, name)
        if group is not None:
            block[name] = _config.to_block(group, FIELDS["skyrl"][name])
    correction = _config.get(config, _CORRECTION)
    if correction is not None and loss not in _UNCORRECTED:
        block[_CORRECTION] = _config.to_block(correction, FIELDS["skyrl"][_CORRECTION])
    # A / (B * 1): the reduction with a divisor that does not depend on the mask.
    reduction = {"loss_reduction": "seq_mean_token_sum_norm", "max_seq_len": 1}
    return {**block, **reduction, "policy_loss_type": loss, "use_kl_loss": False}
