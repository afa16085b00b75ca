"""TRL's GRPOTrainer: its loss, its importance-sampling ratio and its off-policy mask.

    # from trl import GRPOTrainer
    from counterweight_rl.compat.trl import GRPOTrainer

It is TRL's own class with ``GRPOMixin`` before it; a subclass takes the mixin:

    class Trainer(GRPOMixin, GRPOTrainer): ...

Its numbers are those of TRL 1.10 to 1.16; forward pass, entropies, auxiliary losses and logging
stay TRL's. On creation a trainer asks the server for the loss of two tokens, and refuses
``use_adaptive_entropy``; ``top_entropy_quantile`` < 1 with ``loss_type`` vespo;
``use_liger_kernel`` if TRL (< 1.14) computes another loss with it; and settings that the server
refuses. It differs as follows:

* The loss takes the importance-sampling ratio from the log-probs, not from
  ``inputs["importance_sampling_ratio"]``, unless the inputs have the latter only.
* With ``top_entropy_quantile`` < 1 ``clip_ratio/*`` counts tokens of low entropy as not clipped.

The functions here serve trainers that compute their own loss. TRL computes the ratio inside
``_generate_and_score_completions``; the function has the name of its variable. Numbers, metric
names and quirks are those of the dialect ``trl``; server/engine/dialects/README.md lists them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from counterweight_rl.compat import _peers, _service
from counterweight_rl.compat._trl_trainer import GRPOMixin

if TYPE_CHECKING:
    from counterweight_rl.result import Result

__all__ = ["GRPOMixin", "get_off_policy_mask", "vllm_importance_sampling_ratio"]


__getattr__ = _peers.getattr_deriving(
    __name__,
    {"GRPOTrainer": "trl"},
    GRPOMixin,
    "TRL's GRPOTrainer with the loss of the service; see GRPOMixin.",
)


def vllm_importance_sampling_ratio(
    old_per_token_logps: torch.Tensor,
    sampling_per_token_logps: torch.Tensor,
    mask: torch.Tensor,
    *,
    vllm_importance_sampling_mode: str = "sequence_mask",
    vllm_importance_sampling_clip_max: float | None = 3.0,
    vllm_importance_sampling_clip_min: float | None = None,
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns the ratio that multiplies the loss, and the ``sampling/*`` metrics.

    Args:
        old_per_token_logps: [B, T] nats, of the training policy.
        sampling_per_token_logps: [B, T] nats, reported by vLLM.
        mask: [B, T], each 0 or 1: completion_mask, times tool_mask where there are tools.
        vllm_importance_sampling_mode: token_truncate, token_mask, sequence_truncate, sequence_mask
            or sequence_geometric_mean_mask, a GRPOConfig's field like the next two.
        vllm_importance_sampling_clip_max: Upper bound, a ratio; None: none.
        vllm_importance_sampling_clip_min: Lower bound, a ratio; None: none.

    Returns:
        [B, T] for token modes, [B, 1] for sequence modes, in the dtype of
        ``(old_per_token_logps - sampling_per_token_logps) * mask``. 1 where the mask is 0 and in
        rows without a completion token (TRL: 1 after the bounds, the same unless they exclude 1).

    Raises:
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    ratio, result = ratio_and_answer(
        old_per_token_logps,
        sampling_per_token_logps,
        mask,
        vllm_importance_sampling_mode=vllm_importance_sampling_mode,
        vllm_importance_sampling_clip_max=vllm_importance_sampling_clip_max,
        vllm_importance_sampling_clip_min=vllm_importance_sampling_clip_min,
        outputs=("weights",),
    )
    return ratio, result.metrics


def ratio_and_answer(
    old_per_token_logps: torch.Tensor,
    sampling_per_token_logps: torch.Tensor,
    mask: torch.Tensor,
    *,
    vllm_importance_sampling_mode: str,
    vllm_importance_sampling_clip_max: float | None,
    vllm_importance_sampling_clip_min: float | None,
    **options: Any,
) -> tuple[torch.Tensor, Result[torch.Tensor]]:
    """Returns the ratio of ``vllm_importance_sampling_ratio`` and the service's answer.

    Args:
        old_per_token_logps: As there, like the next five.
        sampling_per_token_logps: As there.
        mask: As there.
        vllm_importance_sampling_mode: As there.
        vllm_importance_sampling_clip_max: As there.
        vllm_importance_sampling_clip_min: As there.
        **options: Options of ``Client.correct``.
    """
    result = _service.correct(
        "trl",
        {
            "vllm_importance_sampling_mode": vllm_importance_sampling_mode,
            "vllm_importance_sampling_clip_max": vllm_importance_sampling_clip_max,
            "vllm_importance_sampling_clip_min": vllm_importance_sampling_clip_min,
        },
        old_log_probs=old_per_token_logps,
        rollout_log_probs=sampling_per_token_logps,
        response_mask=mask,
        once_per_batch=True,
        **options,
    )
    assert result.weights is not None  # requested
    dtype = torch.promote_types(old_per_token_logps.dtype, sampling_per_token_logps.dtype)
    dtype = torch.promote_types(dtype, mask.dtype)
    ratio = result.weights.to(dtype).masked_fill(mask == 0, 1)
    if vllm_importance_sampling_mode.startswith("sequence"):
        ratio = _of_row(ratio, mask)
    return ratio, result


def get_off_policy_mask(
    advantages: torch.Tensor,
    per_token_logps: torch.Tensor,
    sampling_per_token_logps: torch.Tensor,
    mask: torch.Tensor,
    off_policy_threshold: float,
) -> torch.Tensor:
    """Computes OPSM: drops rows of negative advantage that drifted further than the threshold.

    Args:
        advantages: [B, 1], or [B, T] for a decision per token.
        per_token_logps: [B, T] nats, of the policy being trained; constants.
        sampling_per_token_logps: [B, T] nats, of the sampling policy (TRL passes the old ones if it
            has none).
        mask: [B, T], each 0 or 1.
        off_policy_threshold: Mean log ratio above which a row has drifted; nats.

    Returns:
        The shape of advantages, the dtype of mask: 1 = keep. 1 also in rows without a token, and
        at positions with mask 0.

    Raises:
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    result = _service.correct(
        "trl",
        {
            "vllm_importance_sampling_correction": False,
            "off_policy_mask_threshold": off_policy_threshold,
        },
        advantages=advantages,
        current_log_probs=per_token_logps,
        rollout_log_probs=sampling_per_token_logps,
        response_mask=mask,
        outputs=("keep_mask",),
        once_per_batch=None,
    )
    assert result.keep_mask is not None  # requested
    keep = result.keep_mask.masked_fill(mask == 0, 1)
    return keep if advantages.shape == mask.shape else _of_row(keep, mask)


def _of_row(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns [B, 1]: the value common to a row's tokens, taken from the first that counts."""
    if mask.shape[1] == 0:
        return values.new_ones((mask.shape[0], 1))
    first = mask.to(torch.uint8).argmax(dim=1, keepdim=True)
    return values.gather(1, first)
