"""verl's functions: ``verl.trainer.ppo.rollout_corr_helper`` and ``verl.trainer.ppo.core_algos``.

    # from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
    from counterweight_rl.compat.verl import compute_rollout_correction_and_add_to_batch

    # from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from counterweight_rl.compat.verl import get_policy_loss_fn

It follows verl-project/verl @1dda039b. Numbers, metric names and quirks are those of the dialect
``verl``; server/engine/dialects/README.md lists them. Other names that verl's trainers import from
these modules (``agg_loss``, ``kl_penalty``, ...) are verl's own, imported on first use, and
``get_policy_loss_fn`` also returns losses registered with verl. Differences:

* ``rollout_is_weights`` multiply the advantages. ``clip_cov``, ``kl_cov``, ``geo_mean`` and
  ``dro``, which are not proportional to those, refuse them; use ``counterweight_rl.torch`` with a
  ``Dialect`` that has the ``rollout_is``.
* A token of weight 0 counts as not clipped in ``actor/pg_clipfrac``.
* Batch normalization in bypass mode averages over this call's batch.
* With the setting ``over_ranks`` the corrections take the batches of all ranks as one, for trainers
  in which every rank corrects; verl's driver has the whole batch, and the losses refuse it.
* Steps are reported (``use``) for these losses: bypass mode's correction, or ``rollout_is_weights``
  as they reach the loss. The driver, which applies no weight, reports none.
* Fields of the configuration that are newer than this package are omitted while they are None.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch

from counterweight_rl.compat import _config, _peers, _service
from counterweight_rl.compat._verl_losses import (
    CORE_ALGOS,
    CORRECTION_METRICS,
    POLICY_LOSS_REGISTRY,
    PolicyLossFn,
    compute_policy_loss_bypass_mode,
    compute_policy_loss_cispo,
    compute_policy_loss_clip_cov,
    compute_policy_loss_dppo_kl,
    compute_policy_loss_dppo_tv,
    compute_policy_loss_dro,
    compute_policy_loss_geo_mean,
    compute_policy_loss_gpg,
    compute_policy_loss_gspo,
    compute_policy_loss_kl_cov,
    compute_policy_loss_reinforce,
    compute_policy_loss_sapo,
    compute_policy_loss_vanilla,
    get_policy_loss_fn,
)
from counterweight_rl.errors import InvalidTypeError, Violation

__all__ = [
    "POLICY_LOSS_REGISTRY",
    "PolicyLossFn",
    "WeightsHolder",
    "compute_policy_loss_bypass_mode",
    "compute_policy_loss_cispo",
    "compute_policy_loss_clip_cov",
    "compute_policy_loss_dppo_kl",
    "compute_policy_loss_dppo_tv",
    "compute_policy_loss_dro",
    "compute_policy_loss_geo_mean",
    "compute_policy_loss_gpg",
    "compute_policy_loss_gspo",
    "compute_policy_loss_kl_cov",
    "compute_policy_loss_reinforce",
    "compute_policy_loss_sapo",
    "compute_policy_loss_vanilla",
    "compute_rollout_correction_and_add_to_batch",
    "compute_rollout_correction_and_rejection_mask",
    "get_policy_loss_fn",
]

__getattr__ = _peers.getattr_from(
    __name__,
    {
        CORE_ALGOS: (
            "AdvantageEstimator",
            "agg_loss",
            "compute_entropy_loss",
            "compute_value_loss",
            "get_kl_controller",
            "kl_penalty",
            "register_policy_loss",
        ),
        "verl.trainer.ppo.rollout_corr_helper": (
            "SUPPORTED_ROLLOUT_RS_OPTIONS",
            "apply_bypass_mode",
            "compute_is_metrics",
            "compute_offpolicy_metrics",
            "compute_rollout_corr_metrics_from_logprobs",
        ),
    },
)


@dataclass(frozen=True)
class WeightsHolder:
    """Holds the weights if verl is not imported; else verl's DataProto does.

    Attributes:
        batch: "rollout_is_weights": [B, T].
    """

    batch: dict[str, torch.Tensor]


def compute_rollout_correction_and_rejection_mask(
    old_log_prob: torch.Tensor,
    rollout_log_prob: torch.Tensor,
    response_mask: torch.Tensor,
    rollout_is: str | None = None,
    rollout_is_threshold: str | float | None = 2.0,
    rollout_is_batch_normalize: bool = False,
    rollout_rs: str | None = None,
    rollout_rs_threshold: str | float | None = None,
) -> tuple[Any, torch.Tensor, dict[str, float]]:
    """Returns importance weights, rejection mask and drift metrics of one batch.

    Args:
        old_log_prob: [B, T] nats, of the training policy.
        rollout_log_prob: [B, T] nats, of the policy that sampled.
        response_mask: [B, T], each 0 or 1; 1 = the token counts.
        rollout_is: "token", "sequence", or None for no weights.
        rollout_is_threshold: Upper bound (TIS) or "lower_upper" (IcePop), ratios; None: no weights.
        rollout_is_batch_normalize: Divide weights by their mean over this process's batch, or with
            ``over_ranks`` over all ranks' batches; verl's mean over the ranks' micro-batches (in
            bypass mode) is not taken.
        rollout_rs: Rejection options, comma-separated, or None.
        rollout_rs_threshold: One threshold, or one for each option, comma-separated.

    Returns:
        A DataProto (if verl is imported; else a ``WeightsHolder``) in which
        ``batch["rollout_is_weights"]`` is [B, T] in verl's dtype, 0 where the mask is 0, or None
        without weights; the mask after rejection, in response_mask's dtype; metrics
        ``rollout_corr/*``.

    Raises:
        InvalidRequestError: See ``counterweight_rl.compat``; a TypeError too if the threshold is a
            boolean.
    """
    if rollout_is is not None and isinstance(rollout_is_threshold, bool):
        problem = (
            "rollout_is_threshold must be specified as a float or a string threshold "
            f"specification, not a boolean; got {rollout_is_threshold}"
        )
        violation = Violation("rollout_is_threshold", problem)
        raise InvalidTypeError("invalid request", violations=[violation])
    result = _service.correct(
        "verl",
        {
            "rollout_is": rollout_is,
            "rollout_is_threshold": rollout_is_threshold,
            "rollout_is_batch_normalize": rollout_is_batch_normalize,
            "rollout_rs": rollout_rs,
            "rollout_rs_threshold": rollout_rs_threshold,
        },
        old_log_probs=old_log_prob,
        rollout_log_probs=rollout_log_prob,
        response_mask=response_mask,
        once_per_batch=True,
    )
    holder = None
    if result.weights is not None:
        # The dtype of (old - rollout).exp() * mask.
        dtype = torch.promote_types(old_log_prob.dtype, rollout_log_prob.dtype)
        dtype = torch.promote_types(dtype, response_mask.dtype)
        holder = _hold({"rollout_is_weights": result.weights.to(dtype)})
    assert result.keep_mask is not None  # a default output
    return holder, result.keep_mask, _service.metrics_of(result.metrics, CORRECTION_METRICS)


def compute_rollout_correction_and_add_to_batch(
    batch: Any, rollout_corr_config: Any
) -> tuple[Any, dict[str, float]]:
    """Corrects a DataProto: its response_mask, and rollout_is_weights if any.

    Args:
        batch: ``batch.batch`` holds old_log_probs, rollout_log_probs and response_mask, [B, T].
        rollout_corr_config: A RolloutCorrectionConfig, or a mapping with its fields; absent fields
            have the defaults of ``compute_rollout_correction_and_rejection_mask``.

    Returns:
        The batch, with the weights united into it, and the metrics.

    Raises:
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    fields = (
        "rollout_is",
        "rollout_is_threshold",
        "rollout_is_batch_normalize",
        "rollout_rs",
        "rollout_rs_threshold",
    )
    given = _config.given(rollout_corr_config, fields)
    weights, mask, metrics = compute_rollout_correction_and_rejection_mask(
        old_log_prob=batch.batch["old_log_probs"],
        rollout_log_prob=batch.batch["rollout_log_probs"],
        response_mask=batch.batch["response_mask"],
        **given,
    )
    batch.batch["response_mask"] = mask
    return batch if weights is None else batch.union(weights), metrics


def _hold(tensors: dict[str, torch.Tensor]) -> Any:
    # A caller that unites verl's class with a batch has imported it.
    protocol = sys.modules.get("verl.protocol")
    if protocol is None:
        return WeightsHolder(batch=tensors)
    return protocol.DataProto.from_dict(tensors=tensors)
