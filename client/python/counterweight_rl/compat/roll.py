"""ROLL's correction, ``roll.utils.train_infer_corrections``, and the loss of its actors.

    # from roll.utils.train_infer_corrections import compute_train_infer_correction
    from counterweight_rl.compat.roll import compute_train_infer_correction

has weights and filters, and

    actor_train:
      worker_cls: counterweight_rl.compat.roll.ActorPGWorker

the whole loss, of the RLVR pipeline's ``ActorPGWorker`` or ``ActorWorker``: classes of ROLL's, made
on first use, with ``ActorLossMixin`` before them; or ``class Worker(ActorLossMixin,
ActorPGWorker)``. Numbers and quirks are those of the dialect ``roll`` (alibaba/ROLL @8eb27cc2).
Differences of the function:

* Masked positions count in metrics as in ROLL, but with equal log-probs: a ratio of 1.
* Weights and filters are 1 where the mask is 0; ROLL multiplies by the mask.
* With nothing enabled nothing is sent, and of the metrics there is the share that passes alone.

Differences of the loss:

* The metrics are ROLL's own, all of them: its own method computes them, from detached log-probs and
  with a loss that is not used.
* Masked positions add nothing to ``token-mean``; ROLL adds their losses, which are 0 where their
  advantages are.
* Refused by name: entropy_loss_coef, length_loss_weight, difficulty_loss_weight, the
  pg_variant ``topr``, cispo_use_unified_mask, and ``kimi15`` with weights of
  enable_old_logprobs_recompute. The agentic pipeline's workers keep ROLL's loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from counterweight_rl.compat import _peers, _service
from counterweight_rl.compat._roll_loss import ActorLossMixin, is_filter
from counterweight_rl.dialect_blocks import to_mapping
from counterweight_rl.errors import Violation, refuse

__all__ = ["ActorLossMixin", "compute_train_infer_correction"]

__getattr__ = _peers.getattr_deriving(
    __name__,
    {
        name: f"roll.pipeline.rlvr.{home}"
        for name, home in (("ActorWorker", "actor_worker"), ("ActorPGWorker", "actor_pg_worker"))
    },
    ActorLossMixin,
    "ROLL's class of this name with ``ActorLossMixin``.",
)

_EPSILON = 1e-8
"""ROLL adds it to numbers that it divides by."""
_OF_ROWS = ("actor/train_infer_ratio_", "actor/train_infer_diff_")


def compute_train_infer_correction(
    cfg: Any,
    response_mask: torch.Tensor,
    old_log_probs: torch.Tensor,
    infer_log_probs: torch.Tensor,
    global_valid_samples: float | None = None,
    global_valid_tokens: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Computes weights, filters and metrics from the drift of the training policy.

    Args:
        cfg: A TrainInferCorrectionConfig, or an object or mapping with its fields.
        response_mask: [B, T], each 0 or 1.
        old_log_probs: [B, T] nats, of the training policy.
        infer_log_probs: [B, T] nats, of the policy that sampled.
        global_valid_samples: Sequences that means are divided by. None: those with a token here.
        global_valid_tokens: The same of tokens.

    Returns:
        The weights, [B, T], constants in the dtype of the log-probs' difference; the filters, [B,
        T], 1 for each token that passes all, float32 or, if none is enabled, int64; metrics.

    Raises:
        InvalidRequestError: Weights that are not detached, of log-probs with a gradient; see
            ``counterweight_rl.compat``.
    """
    block = to_mapping("roll", {"train_infer_correction": cfg})
    correction = block["train_infer_correction"]
    weight, filters = correction.get("is_weight") or {}, correction.get("filters") or []
    weighs, rejects = bool(weight.get("enabled")), any(map(is_filter, filters))
    dtype = torch.promote_types(old_log_probs.dtype, infer_log_probs.dtype)
    weights = torch.ones_like(old_log_probs, dtype=dtype, requires_grad=False)
    passes = torch.ones_like(response_mask, dtype=torch.int64)
    if not (weighs or rejects):
        return weights, passes, _share_of_all(response_mask) if filters else {}
    _refuse_gradient(weight, weighs, old_log_probs, infer_log_probs)
    result = _service.correct(
        "roll",
        block,
        release="",  # it runs from git
        old_log_probs=old_log_probs.detach(),
        rollout_log_probs=infer_log_probs.detach(),
        response_mask=response_mask,
        outputs=("weights", "keep_mask"),
    )
    masked = response_mask == 0
    assert result.keep_mask is not None  # requested, like the weights
    if weighs:
        assert result.weights is not None
        weights = result.weights.to(dtype).masked_fill(masked, 1)
    if rejects:
        passes = result.keep_mask.masked_fill(masked, 1).float()
    metrics = _divided(result.metrics, response_mask, global_valid_samples, global_valid_tokens)
    return weights, passes, metrics


def _refuse_gradient(weight: Mapping[str, Any], weighs: bool, *log_probs: torch.Tensor) -> None:
    if weighs and not weight.get("detach", True) and any(one.requires_grad for one in log_probs):
        problem = "must be true, or old_log_probs and infer_log_probs constants: weights are"
        raise refuse([Violation("cfg.is_weight.detach", problem)])


def _share_of_all(response_mask: torch.Tensor) -> dict[str, float]:
    tokens = int((response_mask != 0).sum())
    return {"actor/train_infer_final_mask_mean": tokens / (tokens + _EPSILON)}


def _divided(
    metrics: Mapping[str, float],
    response_mask: torch.Tensor,
    samples: float | None,
    tokens: float | None,
) -> dict[str, float]:
    """Returns the metrics, divided by the given counts instead of this batch's."""
    of_rows = of_tokens = 1.0
    if samples is not None:
        counted = int((response_mask != 0).any(-1).sum())
        of_rows = (counted + _EPSILON) / (float(samples) + _EPSILON)
    if tokens is not None:
        of_tokens = max(int((response_mask != 0).sum()), 1) / float(tokens)
    divided = {}
    for name, value in metrics.items():
        if name.startswith(_OF_ROWS):
            value *= of_rows
        elif name.endswith("@sum"):
            value *= of_tokens
        divided[name] = value
    return divided
