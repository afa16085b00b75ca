"""ms-swift's GRPO losses by the service: what is refused, the block, the tensors."""

from __future__ import annotations

from typing import Any

import torch

from counterweight_rl.compat import _service
from counterweight_rl.errors import Violation, refuse
from counterweight_rl.torch import attach, outputs_for

MODE = "rollout_importance_sampling_mode"
THRESHOLD = "rollout_importance_sampling_threshold"
_OPSM = "off_policy_sequence_mask_delta"
# Fields of the dialect that a trainer has under the same names.
_OF_TRAINER = (
    *("loss_type", "epsilon_high", "importance_sampling_level", "tau_pos", "tau_neg"),
    *("max_completion_length", _OPSM),
)
_BY_ITEMS = ("dapo", "cispo")

LIGER = Violation(
    "use_liger_kernel", "is not supported: that loss is fused with the model's last layer"
)


def refuse_others(trainer: Any) -> None:
    """Raises the InvalidRequestError of a trainer with a loss that the service lacks."""
    violations = []
    if getattr(trainer, "top_entropy_quantile", 1.0) < 1.0:
        violations.append(
            Violation("top_entropy_quantile", "must be 1.0: no loss has a mask by entropies")
        )
    if getattr(trainer, "sdar_loss_coef", 0.0) > 0.0:
        violations.append(
            Violation("sdar_loss_coef", "must be 0: the loss has no term of a teacher")
        )
    if getattr(trainer, "chord_sft_iterator", None) is not None:
        violations.append(
            Violation("chord_sft_dataset", "must be absent: the loss has no term of other data")
        )
    if violations:
        raise refuse(violations)


def policy_loss(
    trainer: Any,
    batch: Any,
    current: torch.Tensor,
    mask: torch.Tensor,
    *,
    counts: dict[str, Any],
    group: Any = None,
) -> torch.Tensor:
    """Requests one micro-batch's loss, a node of autograd.

    Args:
        trainer: The trainer with its settings.
        batch: ms-swift's ``GRPOBatch``.
        current: [B, T] nats; gets the gradient.
        mask: [B, T] bool.
        counts: Fields of the dialect that only the kind of trainer knows, ``num_items_in_batch``
            apart.
        group: The process group of the ranks that must all have the sampler's log-probs. None: all
            ranks.

    Raises:
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    block = {name: getattr(trainer, name) for name in _OF_TRAINER}
    block |= counts
    block |= {"epsilon": trainer.epsilon_low, "delta": trainer.args.delta}
    is_megatron = block.get("backend") == "megatron"
    has_penalty = trainer.beta != 0.0 and not trainer.kl_in_reward
    if is_megatron:
        has_penalty = has_penalty and batch.ref_per_token_logps is not None
    block["beta"] = trainer.beta if has_penalty else 0.0
    if block["loss_type"] in (*_BY_ITEMS, *(["bnpo"] if is_megatron else [])):
        block["num_items_in_batch"] = int(batch.num_items_in_batch)
    rollout, old = batch.rollout_per_token_logps, batch.old_per_token_logps
    mode = None if trainer.disable_rollout_importance_sampling else getattr(trainer, MODE)
    if mode is not None and _everywhere(rollout is not None, group):
        block |= {MODE: mode, THRESHOLD: getattr(trainer, THRESHOLD)}
    elif block[_OPSM] is None:
        rollout = None
    if rollout is None and old is None:
        block[_OPSM] = None  # its ratio is 1
    result = _service.correct(
        "ms_swift",
        block,
        release="",  # the loss is of one release
        current_log_probs=current,
        old_log_probs=None if old is None else old.detach(),
        rollout_log_probs=None if rollout is None else rollout.detach(),
        ref_log_probs=batch.ref_per_token_logps if has_penalty else None,
        advantages=batch.advantages.detach(),
        response_mask=mask,
        outputs=outputs_for(current),
        metrics=False,
    )
    return attach(current, result)


def _everywhere(has: bool, group: Any) -> bool:
    """Returns whether every rank of a group has it."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return has
    found: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(found, has, group=group)
    return all(found)
