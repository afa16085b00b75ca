"""SkyRL's functions: ``skyrl.backends.skyrl_train.utils.off_policy_correction_utils``.

    from counterweight_rl.compat.skyrl import apply_off_policy_correction

It follows SkyRL 0.3.0 and 0.4.0. Numbers, metric names and quirks are those of the dialect
``skyrl``; server/engine/dialects/README.md lists them. ``off_policy_correction_enabled`` and the
functions behind these are SkyRL's own, imported on first use. Differences:

* A mask with other numbers than 0 and 1 (Tinker's weights) is corrected by SkyRL's own function,
  with a warning.
* Fields of the configuration that are newer than this package are omitted while they are None.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from counterweight_rl.compat import _config, _peers, _service
from counterweight_rl.dialect_fields import FIELDS
from counterweight_rl.errors import Violation, refuse
from counterweight_rl.stack_level import stack_level

if TYPE_CHECKING:
    from counterweight_rl.compat._step_books import Books
    from counterweight_rl.result import Result

_PEER = "skyrl.backends.skyrl_train.utils.off_policy_correction_utils"

__getattr__ = _peers.getattr_from(
    __name__,
    {
        _PEER: (
            "compute_outlier_token_mask",
            "compute_sequence_mask",
            "compute_tis_ratio",
            "compute_token_mask",
            "off_policy_correction_enabled",
        )
    },
)

_FIELDS = FIELDS["skyrl"]["off_policy_correction"]
NO_ROLLOUT = "no_rollout_log_probs"
"""Reason of a batch that is not corrected although the configuration says so."""


def apply_off_policy_correction(
    loss: torch.Tensor,
    old_log_probs: torch.Tensor | None,
    rollout_logprobs: torch.Tensor | None,
    loss_mask: torch.Tensor | None,
    off_policy_correction: Any,
) -> tuple[torch.Tensor, torch.Tensor | None, dict[str, float]]:
    """Multiplies token losses by importance weights and removes rejected tokens from the mask.

    If the configuration enables nothing, or there are no rollout log-probs, the function returns
    loss and mask unchanged, sends nothing, and ignores the other arguments.

    Args:
        loss: [B, T], the loss of each token in any unit; its graph is kept.
        old_log_probs: [B, T] nats, of the training policy.
        rollout_logprobs: [B, T] nats, of the sampling policy. None: no correction.
        loss_mask: [B, T], each 0 or 1. SkyRL's Tinker backend may use other token weights, which
            enter SkyRL's ratios of sequences and its ``is_ratio_*``. The service does not support
            them: SkyRL's own function corrects such a batch, with a warning.
        off_policy_correction: An OffPolicyCorrectionConfig, or an object with its fields; an absent
            field is not set.

    Returns:
        The loss times the weights (0 where the mask is 0), unchanged without a
        the configuration alone, in SkyRL's order.

    Raises:
        InvalidRequestError: A mask with other values while SkyRL is not installed; or see
            ``counterweight_rl.compat``.
    """
    if rollout_logprobs is None:
        if loss.requires_grad:
            _service.enter(lambda books: _enter_skipped(books, off_policy_correction, loss_mask))
        return loss, loss_mask, {}
    weights, metrics, mask, result = _correct(
        old_log_probs, rollout_logprobs, loss_mask, off_policy_correction
    )
    if result is not None and loss_mask is not None and loss.requires_grad:
        _service.weighed(result, loss_mask, weights, mask)
    return loss if weights is None else loss * weights, mask, metrics


def compute_off_policy_correction(
    old_log_probs: torch.Tensor | None,
    rollout_logprobs: torch.Tensor | None,
    loss_mask: torch.Tensor | None,
    off_policy_correction: Any,
) -> tuple[torch.Tensor | None, dict[str, float], torch.Tensor | None]:
    """Returns weights, metrics and mask of ``apply_off_policy_correction``.

    Returns:
        The weights, [B, T] (SkyRL: [B, 1] at sequence level) in old_log_probs' dtype, or None;
        metrics; the mask. ``(None, {}, loss_mask)`` if nothing is enabled.

    Raises:
        InvalidRequestError: See ``apply_off_policy_correction``.
    """
    arguments = (old_log_probs, rollout_logprobs, loss_mask, off_policy_correction)
    weights, metrics, mask, _ = _correct(*arguments)
    return weights, metrics, mask


def _correct(
    old_log_probs: torch.Tensor | None,
    rollout_logprobs: torch.Tensor | None,
    loss_mask: torch.Tensor | None,
    off_policy_correction: Any,
) -> tuple[torch.Tensor | None, dict[str, float], torch.Tensor | None, Result[torch.Tensor] | None]:
    """Returns weights, metrics and mask, and the service's answer if they are made of it."""
    block = _config.to_block(off_policy_correction, _FIELDS)
    names = metric_names(block)
    if not names:
        _warn_of_others(block)
        return None, {}, loss_mask, None
    if _weighs_tokens(loss_mask):
        arguments = (old_log_probs, rollout_logprobs, loss_mask, off_policy_correction)
        return *_skyrls_own(*arguments), None
    result = _service.correct(
        "skyrl",
        {"off_policy_correction": block},
        old_log_probs=old_log_probs,
        rollout_log_probs=rollout_logprobs,
        response_mask=loss_mask,
    )
    assert result.keep_mask is not None  # a default output
    weights = None
    if result.weights is not None:
        assert old_log_probs is not None  # the server refuses the batch otherwise
        weights = result.weights.to(old_log_probs.dtype)
    # SkyRL reduces the dictionary over ranks value by value in its order, so all ranks must have
    # the same names.
    # An answer of on_unavailable="identity" has no metrics.
    metrics = {n: result.metrics.get(n, math.nan) for n in names}
    return weights, metrics, result.keep_mask, result


def _enter_skipped(books: Books, off_policy_correction: Any, loss_mask: Any) -> None:
    """Enters a batch without rollout log-probs, if it was to be corrected."""
    enables = metric_names(_config.to_block(off_policy_correction, _FIELDS))
    books.enter_uncorrected(loss_mask, NO_ROLLOUT if enables else None)


def metric_names(block: Mapping[str, Any]) -> list[str]:
    """Returns SkyRL's metrics in its order; none if the block enables nothing."""

    def is_set(name: str) -> bool:
        return block.get(name) is not None

    names = []
    if is_set("outlier_token_is_threshold_low") or is_set("outlier_token_is_threshold_high"):
        names += _shares("outlier_seq")
    if is_set("token_mask_is_threshold_low") and is_set("token_mask_is_threshold_high"):
        names.append("token_mask_ratio")
    if is_set("tis_ratio_type"):
        level = "token" if block["tis_ratio_type"] == "token" else "seq"
        names.append(f"tis_{level}_clip_high_ratio")
    if is_set("sequence_mask_metric"):
        metric = "geo" if block["sequence_mask_metric"] == "geometric" else "product"
        names += _shares(f"{metric}_sequence_mask")
    ratio = [f"is_ratio_{statistic}" for statistic in ("mean", "std", "max", "min")]
    return [*ratio, *names] if names else []


def _shares(rule: str) -> list[str]:
    return [f"{rule}_{share}_ratio" for share in ("masked", "over_high", "under_low")]


def _warn_of_others(block: Mapping[str, Any]) -> None:
    """Warns of fields that only a newer SkyRL knows."""
    others = sorted(block.keys() - _FIELDS)
    if others:
        warnings.warn(
            "off_policy_correction has fields that counterweight_rl.compat.skyrl does not know, "
            f"and nothing that it knows is switched on; they do nothing: {', '.join(others)}",
            stacklevel=stack_level(),
        )


def _weighs_tokens(loss_mask: Any) -> bool:
    if not isinstance(loss_mask, torch.Tensor) or not loss_mask.is_floating_point():
        return False  # the client reports invalid masks
    return not bool(((loss_mask == 0) | (loss_mask == 1)).all())


def _skyrls_own(*arguments: Any) -> tuple[torch.Tensor | None, dict[str, float], torch.Tensor]:
    """Returns SkyRL's answer. Refuses if SkyRL is absent or uses this module's function."""
    function = None
    with contextlib.suppress(_peers.NotInstalledError):
        function = getattr(_peers.load(_PEER), "compute_off_policy_correction", None)
    if function is None or inspect.unwrap(function) is compute_off_policy_correction:
        raise refuse(
            [
                Violation(
                    "loss_mask",
                    "must hold only 0 and 1 where a correction is switched on: the service does "
                    f"not weigh tokens by other values, and there is no {_PEER} to ask instead",
                )
            ]
        )
    warnings.warn(
        "loss_mask holds other values than 0 and 1, by which the service does not weigh tokens: "
        "SkyRL's own function corrects these batches, and they are not in the service's metrics",
        stacklevel=stack_level(),
    )
    weights, metrics, mask = function(*arguments)
    return weights, metrics, mask
