"""slime's functions: ``slime.backends.megatron_utils.loss`` and its example ``mis.py``.

    --use-tis --custom-tis-function-path counterweight_rl.compat.slime.icepop_function

and the whole loss,

    --loss-type custom_loss
    --custom-loss-function-path counterweight_rl.compat.slime.policy_loss_function

and the losses of tokens in ``slime.utils.ppo_utils``.

Numbers are those of the dialect ``slime`` (THUDM/slime @624b824a); ``compat.miles`` has the same
functions, whose numbers are the same there. Differences:

* Samples must be whole on each rank: no context parallelism.
* Of the metrics of MIS only ``kl``, ``k3_kl`` and ``is_ratio_mean_final`` are there.
* A metric's value at a masked token is that of a ratio of 1; the trainer does not read it.
* ``policy_loss_function`` refuses what the dialect refuses: OPSM beside a correction, a custom
  reducer, functions other than IcePop's and MIS's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from counterweight_rl.compat import _megatron_loss, _peers, _service
from counterweight_rl.compat._megatron_blocks import SLIME, mis_block, tis_block
from counterweight_rl.compat._megatron_metrics import of_mis, of_tis
from counterweight_rl.compat._slime_loss import compute_cispo_loss, compute_policy_loss

__all__ = [
    "compute_cispo_loss",
    "compute_mis_weights",
    "compute_mis_weights_with_cp",
    "compute_policy_loss",
    "icepop_function",
    "policy_loss_function",
    "vanilla_tis_function",
]

_LOSS = "slime.backends.megatron_utils.loss"

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
    return _bounded(args, SLIME.icepop, pg_loss, train_log_probs, rollout_log_probs, loss_masks)


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
    weights, masks, result = None, loss_masks, None
    if args.use_tis:
        result = _ask(mis_block(args), old, rollout, mask, lengths)
        weights = list(result.weights.split(lengths))
        masks = list(result.keep_mask.float().split(lengths))
    metrics = of_mis(ratio, None if result is None else result.weights)
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


def policy_loss_function(
    args: Any,
    batch: Any,
    logits: torch.Tensor,
    sum_of_sample_mean: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Computes a micro-batch's whole policy loss: correction, OPSM, KL penalty and entropy.

    Log-probs and entropy are slime's own, of the logits.

    Args:
        args: The trainer's arguments.
        batch: advantages, log_probs, rollout_log_probs, ref_log_probs and loss_masks, lists of
            [T_i]; unconcat_tokens, total_lengths, response_lengths and rollout_mask_sums. Without
            log_probs the current ones, detached, are the old ones.
        logits: [1, T, V]; get the gradient.
        sum_of_sample_mean: The trainer's reduction, by loss_masks.

    Returns:
        The loss; slime's metrics, of MIS those of ``compute_mis_weights``.

    Raises:
        ValueError: The samples are not whole, or the batch lacks log-probs.
        InvalidRequestError: An argument that the dialect refuses, by its name; and see
            ``counterweight_rl.compat``.
    """
    home = _peers.load(_LOSS)
    _, found = home.get_log_probs_and_entropy(
        logits,
        args=args,
        unconcat_tokens=batch["unconcat_tokens"],
        total_lengths=batch["total_lengths"],
        response_lengths=batch["response_lengths"],
        with_entropy=True,
        **home.get_rollout_top_p_logprob_kwargs(args, batch),
    )
    return _megatron_loss.policy_loss(SLIME, args, batch, found, logits, sum_of_sample_mean)


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
    ratio = torch.where(mask.bool(), (old - rollout).detach(), 0.0)
    return pg_loss * result.weights, loss_masks, of_tis(block, ratio, mask)


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
