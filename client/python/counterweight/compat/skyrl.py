"""SkyRL's functions: ``skyrl.backends.skyrl_train.utils.off_policy_correction_utils``.

    from counterweight.compat.skyrl import apply_off_policy_correction

As of NovaSky-AI/SkyRL @a9564572. Numbers, metric names and quirks are those of the dialect
``skyrl``; server/dialects/README.md lists them.
"""

from __future__ import annotations

from typing import Any

import torch

from counterweight.compat import _config, _service


def apply_off_policy_correction(
    loss: torch.Tensor,
    old_log_probs: torch.Tensor,
    rollout_logprobs: torch.Tensor | None,
    loss_mask: torch.Tensor,
    off_policy_correction: Any,
) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Multiplies token losses by importance weights and takes rejected tokens out of their mask.

    Args:
        loss: [B, T], of each token, in any unit; its graph stays.
        old_log_probs: [B, T] nats, of the training policy.
        rollout_logprobs: [B, T] nats, of the policy that sampled. None: nothing happens.
        loss_mask: [B, T], each 0 or 1.
        off_policy_correction: An OffPolicyCorrectionConfig, or anything with its fields.

    Returns:
        The loss times the weights (0 where the mask is 0), as it came if there is no
        ``tis_ratio_type``; the mask, in loss_mask's dtype; metrics by SkyRL's names, none if
        nothing is switched on.

    Raises:
        InvalidRequestError: As the package says.
    """
    if rollout_logprobs is None:
        return loss, loss_mask, {}
    weights, metrics, loss_mask = compute_off_policy_correction(
        old_log_probs, rollout_logprobs, loss_mask, off_policy_correction
    )
    return loss if weights is None else loss * weights, loss_mask, metrics


def compute_off_policy_correction(
    old_log_probs: torch.Tensor,
    rollout_logprobs: torch.Tensor,
    loss_mask: torch.Tensor,
    off_policy_correction: Any,
) -> tuple[torch.Tensor | None, dict[str, float], torch.Tensor]:
    """Weights, metrics and mask of ``apply_off_policy_correction``.

    Returns:
        The weights, [B, T] (SkyRL: [B, 1] at sequence level) in old_log_probs' dtype, or None;
        metrics; the mask.

    Raises:
        InvalidRequestError: As the package says.
    """
    result = _service.correct(
        "skyrl",
        {"off_policy_correction": _config.to_block(off_policy_correction)},
        old_log_probs=old_log_probs,
        rollout_log_probs=rollout_logprobs,
        response_mask=loss_mask,
    )
    assert result.keep_mask is not None  # a default output
    weights = None if result.weights is None else result.weights.to(old_log_probs.dtype)
    return weights, result.metrics, result.keep_mask
