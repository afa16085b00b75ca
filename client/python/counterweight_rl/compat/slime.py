"""slime's functions: ``slime.backends.megatron_utils.loss`` and its example ``mis.py``.

    --use-tis --custom-tis-function-path counterweight_rl.compat.slime.icepop_function

and the loss of tokens in ``slime.utils.ppo_utils``, ``compute_policy_loss``.

Numbers are those of the dialect ``slime`` (THUDM/slime @624b824a); ``compat.miles`` has the same
functions, whose numbers are the same there. Differences:

* Samples must be whole on each rank: no context parallelism.
* Of the metrics of MIS only ``kl``, ``k3_kl`` and ``is_ratio_mean_final`` are there.
* A metric's value at a masked token is that of a ratio of 1; the trainer does not read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from counterweight_rl.compat import _service
from counterweight_rl.compat._slime_loss import compute_policy_loss
from counterweight_rl.dialect_fields import FIELDS

__all__ = [
    "compute_mis_weights",
    "compute_mis_weights_with_cp",
    "compute_policy_loss",
    "icepop_function",
    "vanilla_tis_function",
]

_ICEPOP = "slime.backends.megatron_utils.loss.icepop_function"
_MIS = "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp"
_TIS_NAMES = ("tis_clip", "tis_clip_low")
# Arguments that only the YAML of slime's and miles' MIS example sets.
_MIS_NAMES = tuple(
    name
    for name in FIELDS["slime"]
    if name.startswith(("tis_", "rs_", "use_rs")) and name not in _TIS_NAMES
)

_Answer = tuple[torch.Tensor, list[torch.Tensor], dict[str, torch.Tensor]]


def vanilla_tis_function(
    args: Any,
    *,
    pg_loss: torch.Tensor,
    train_log_probs: Sequence[torch.Tensor],
    rollout_log_probs: Sequence[torch.Tensor],
    loss_masks: list[torch.Tensor],
    **kwargs: Any,
) -> _Answer:
    """Multiplies token losses by the ratio of the policies, truncated.

    Args:
        args: The trainer's arguments: tis_clip and tis_clip_low.
        pg_loss: [N], the losses of all samples' tokens one after another; its graph is kept.
        train_log_probs: [T_i] nats for each sample, of the training policy.
        rollout_log_probs: The same of the policy that sampled.
        loss_masks: [T_i], each 0 or 1.
        kwargs: The trainer's other arguments, which are not read.

    Returns:
        The weighted losses; the masks; for each token ``tis``, ``tis_clipfrac`` and ``tis_abs``.

    Raises:
        ValueError: The samples are not whole.
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    return _bounded(args, None, pg_loss, train_log_probs, rollout_log_probs, loss_masks)


def icepop_function(
    args: Any,
    *,
    pg_loss: torch.Tensor,
    train_log_probs: Sequence[torch.Tensor],
    rollout_log_probs: Sequence[torch.Tensor],
    loss_masks: list[torch.Tensor],
    **kwargs: Any,
) -> _Answer:
    """``vanilla_tis_function`` with weights of 0 outside of the bounds."""
    return _bounded(args, _ICEPOP, pg_loss, train_log_probs, rollout_log_probs, loss_masks)


def compute_mis_weights(
    args: Any,
    *,
    train_log_probs: Sequence[torch.Tensor],
    rollout_log_probs: Sequence[torch.Tensor],
    loss_masks: list[torch.Tensor],
) -> tuple[list[torch.Tensor] | None, list[torch.Tensor], dict[str, list[torch.Tensor]]]:
    """Computes weights and masks of the MIS example.

    Args:
        args: use_tis, and the arguments of the example's YAML.
        train_log_probs: As in ``vanilla_tis_function``.
        rollout_log_probs: The same.
        loss_masks: The same.

    Returns:
        Weights, [T_i] for each sample, or None without use_tis; masks without rejected tokens, then
        in float; metrics for each token, whose averages are the example's.

    Raises:
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    log_probs = {"train_log_probs": train_log_probs, "rollout_log_probs": rollout_log_probs}
    weights, masks, metrics, _ = _mis(args, loss_masks=loss_masks, **log_probs)
    return weights, masks, metrics


def _mis(
    args: Any,
    *,
    train_log_probs: Sequence[torch.Tensor],
    rollout_log_probs: Sequence[torch.Tensor],
    loss_masks: list[torch.Tensor],
) -> tuple[list[torch.Tensor] | None, list[torch.Tensor], dict[str, list[torch.Tensor]], Any]:
    """Returns the answer of ``compute_mis_weights``, and the service's."""
    old, rollout = torch.cat(list(train_log_probs)), torch.cat(list(rollout_log_probs))
    mask = torch.cat(list(loss_masks)).to(old.device)
    lengths = [one.numel() for one in loss_masks]
    ratio = torch.where(mask.bool(), (old - rollout).detach(), 0.0)
    metrics = {"kl": -ratio, "k3_kl": ratio.expm1() - ratio}
    weights, masks, result = None, loss_masks, None
    if args.use_tis:
        result = _ask(mis_block(args), old, rollout, mask, lengths)
        metrics["is_ratio_mean_final"] = result.weights
        weights = list(result.weights.split(lengths))
        masks = list(result.keep_mask.float().split(lengths))
    rows = {name: list(one.split(lengths)) for name, one in metrics.items()}
    return weights, masks, rows, result


def compute_mis_weights_with_cp(
    args: Any,
    *,
    pg_loss: torch.Tensor,
    train_log_probs: Sequence[torch.Tensor],
    rollout_log_probs: Sequence[torch.Tensor],
    loss_masks: list[torch.Tensor],
    total_lengths: Sequence[int],
    response_lengths: Sequence[int],
    **kwargs: Any,
) -> _Answer:
    """Multiplies token losses by the weights of ``compute_mis_weights``.

    Args:
        args: As in ``compute_mis_weights``.
        pg_loss: As in ``vanilla_tis_function``.
        train_log_probs: The same.
        rollout_log_probs: The same.
        loss_masks: The same.
        total_lengths: Tokens of each sample, which are not read.
        response_lengths: The same of its response.
        kwargs: The trainer's other arguments, which are not read.

    Returns:
        The weighted losses; the masks; the metrics with the prefix ``mis_``, [N].

    Raises:
        ValueError: The samples are not whole.
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    _check_whole(pg_loss, loss_masks)
    log_probs = {"train_log_probs": train_log_probs, "rollout_log_probs": rollout_log_probs}
    weights, masks, metrics, result = _mis(args, loss_masks=loss_masks, **log_probs)
    if weights is not None:
        used = torch.cat(weights)
        mask, lengths = torch.cat(loss_masks).to(used.device), list(map(len, masks))
        _service.weighed(result, mask, used, torch.cat(masks), lengths)
        pg_loss = pg_loss * used
    return pg_loss, masks, {f"mis_{name}": torch.cat(rows) for name, rows in metrics.items()}


def has_mis(args: Any) -> bool:
    """Returns whether the arguments are those of the MIS example."""
    return any(getattr(args, name, None) is not None for name in _MIS_NAMES)


def mis_block(args: Any) -> dict[str, Any]:
    """Returns the arguments of MIS as the dialect's block."""
    return {
        **{name: getattr(args, name, None) for name in _MIS_NAMES},
        "custom_tis_function_path": _MIS,
        "use_tis": getattr(args, "use_tis", True),
    }


def tis_block(args: Any, function: str | None = None) -> dict[str, Any]:
    """Returns the arguments of the built-in correction, or IcePop, as the dialect's block."""
    given = {name: getattr(args, name, None) for name in _TIS_NAMES}
    block = {"use_tis": True, **{name: n for name, n in given.items() if n is not None}}
    return block if function is None else {**block, "custom_tis_function_path": function}


def _bounded(
    args: Any,
    function: str | None,
    pg_loss: torch.Tensor,
    train_log_probs: Sequence[torch.Tensor],
    rollout_log_probs: Sequence[torch.Tensor],
    loss_masks: list[torch.Tensor],
) -> _Answer:
    _check_whole(pg_loss, loss_masks)
    old, rollout = torch.cat(list(train_log_probs)), torch.cat(list(rollout_log_probs))
    mask = torch.cat(list(loss_masks)).to(old.device)
    block = tis_block(args, function)
    lengths = [one.numel() for one in loss_masks]
    result = _ask(block, old, rollout, mask, lengths)
    _service.weighed(result, mask, result.weights, mask, lengths)
    ratio = torch.where(mask.bool(), (old - rollout).detach(), 0.0).exp()
    outside = (ratio < block.get("tis_clip_low", 0.0)) | (ratio > block["tis_clip"])
    metrics = {
        "tis": ratio,
        "tis_clipfrac": (outside & mask.bool()).to(ratio.dtype),
        "tis_abs": (ratio - 1).abs(),
    }
    return pg_loss * result.weights, loss_masks, metrics


def _ask(
    block: dict[str, Any],
    old: torch.Tensor,
    rollout: torch.Tensor,
    mask: torch.Tensor,
    lengths: list[int],
) -> Any:
    return _service.correct(
        "slime",
        block,
        release="",  # it runs from git
        old_log_probs=old.detach(),
        rollout_log_probs=rollout.detach(),
        response_mask=mask,
        sequence_lengths=lengths,
        own_warning="Metrics of slime",
    )


def _check_whole(pg_loss: torch.Tensor, loss_masks: Sequence[torch.Tensor]) -> None:
    if sum(mask.numel() for mask in loss_masks) != pg_loss.numel():
        raise ValueError(
            "counterweight_rl.compat.slime needs whole samples on each rank: set "
            "--context-parallel-size 1"
        )
