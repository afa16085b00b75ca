"""ms-swift's GRPO: ``GRPOTrainer`` of ``swift.rlhf_trainers.grpo_trainer``, and Megatron's.

    # in a file of --external_plugins
    from swift.rlhf_trainers.grpo_trainer import GRPOTrainer
    from counterweight_rl.compat.ms_swift import GRPOLossMixin

    GRPOLossMixin.install(GRPOTrainer)

or, for a trainer of your own, ``class Trainer(GRPOLossMixin, GRPOTrainer)``. ``GRPOLossMixin`` has
the loss with its weights and masks, ``MegatronGRPOLossMixin`` that of ``MegatronGRPOTrainer`` in
``swift.megatron.trainers.grpo_trainer``, and ``RolloutCorrectionMixin`` the weights alone, of
either trainer. They follow ms-swift 4.6.0; numbers and quirks are those of the dialect
``ms_swift``. Differences of the losses:

* The metrics are ms-swift's own, all of them: its own method computes them, from detached log-probs
  and with a loss that is not used.
* Refused by name: loss_type ``real`` and ``fipo``, top_entropy_quantile below 1, sdar_loss_coef,
  chord_sft_dataset, use_liger_kernel.
* With off_policy_sequence_mask_delta a row's tokens have one advantage, so no teacher's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from counterweight_rl.compat import _ms_swift_loss, _peers, _service
from counterweight_rl.compat._ms_swift_loss import MODE, THRESHOLD
from counterweight_rl.errors import refuse

__all__ = ["GRPOLossMixin", "MegatronGRPOLossMixin", "RolloutCorrectionMixin"]

_OWN = "_counterweight_replaced"
"""Attribute of a trainer's class: its own methods that an installation replaced."""

# A class of ms-swift or of the user, which has everything else.
_Trainer: Any = object


class RolloutCorrectionMixin:
    """Gives a GRPOTrainer the service's importance weights; has its attributes of that name."""

    rollout_importance_sampling_mode: str
    rollout_importance_sampling_threshold: float

    @classmethod
    def install(cls, trainer: Any) -> None:
        """Replaces the method of a trainer's class, after a call that checks the settings.

        Raises:
            ValueError: A ``COUNTERWEIGHT_*`` variable is out of its range.
            CounterweightError: The server does not answer.
        """
        _service.check()
        trainer._apply_rollout_importance_sampling = cls._apply_rollout_importance_sampling

    def _apply_rollout_importance_sampling(
        self, rollout_log_ratio: torch.Tensor, completion_mask: torch.Tensor
    ) -> torch.Tensor:
        """Returns the importance weights, in the dtype of the log ratio.

        Args:
            rollout_log_ratio: [B, T] nats, training policy - the policy that sampled.
            completion_mask: [B, T], each 0 or 1.

        Returns:
            [B, T]; 0 where the mask is 0, where ms-swift has the padding's number.

        Raises:
            InvalidRequestError: See ``counterweight_rl.compat``.
        """
        ratio = rollout_log_ratio.detach()
        result = _service.correct(
            "ms_swift",
            {MODE: getattr(self, MODE), THRESHOLD: getattr(self, THRESHOLD), "beta": 0.0},
            # Log-probs with this difference, both at most 0.
            old_log_probs=ratio.clamp(max=0),
            rollout_log_probs=-ratio.clamp(min=0),
            response_mask=completion_mask,
            release="",  # the weights of all releases are the same
        )
        weights: torch.Tensor = result.weights.to(rollout_log_ratio.dtype)
        return weights


class GRPOLossMixin(_Trainer):
    """Gives a GRPOTrainer the service's loss: weights, masks, value and gradient."""

    @classmethod
    def install(cls, trainer: Any) -> None:
        """Replaces methods of a trainer's class, after a call that checks the settings.

        Raises:
            ValueError: A ``COUNTERWEIGHT_*`` variable is out of its range.
            CounterweightError: The server does not answer.
        """
        _install(trainer, cls, ("_compute_loss_and_metrics", "compute_liger_loss"))

    def _compute_loss_and_metrics(
        self, model: Any, model_inputs: dict[str, Any], grpo_batch: Any
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Returns the loss of one micro-batch and ms-swift's metrics.

        Args:
            model: The model of the forward pass.
            model_inputs: Its inputs.
            grpo_batch: A ``GRPOBatch``.

        Raises:
            InvalidRequestError: A setting of those in the module's documentation; see also
                ``counterweight_rl.compat``.
        """
        _ms_swift_loss.refuse_others(self)
        log_probs, entropies = self._get_per_token_logps_and_entropies(
            model, model_inputs, grpo_batch, compute_entropy=self.compute_entropy
        )
        mask, truncated = grpo_batch.completion_mask, grpo_batch.truncated_mask
        if self.overlong_filter and any(truncated):
            mask = mask & ~truncated.unsqueeze(-1)
        if self.model.training:
            _service.set_step(self.state.global_step)
        # The dialect divides by the items of all ranks, and ms-swift by those of each.
        counts = {"gradient_accumulation_steps": self.accelerator.num_processes}
        loss = _ms_swift_loss.policy_loss(self, grpo_batch, log_probs, mask, counts=counts)
        own = _own(self, GRPOLossMixin, "_compute_loss_and_metrics")
        with torch.no_grad(), _forward(self, log_probs.detach(), entropies):
            _, metrics = own(model, model_inputs, grpo_batch)
        return self._undo_gradient_accumulation_scaling(loss), metrics

    def compute_liger_loss(self, *_: Any, **__: Any) -> torch.Tensor:
        """Raises the InvalidRequestError of use_liger_kernel."""
        raise refuse([_ms_swift_loss.LIGER])


class MegatronGRPOLossMixin(_Trainer):
    """Gives a MegatronGRPOTrainer the same."""

    @classmethod
    def install(cls, trainer: Any) -> None:
        """Replaces a method of a trainer's class, after a call that checks the settings.

        Raises:
            ValueError: A ``COUNTERWEIGHT_*`` variable is out of its range.
            CounterweightError: The server does not answer.
        """
        _install(trainer, cls, ("loss_func",))

    def loss_func(
        self, output_tensor: torch.Tensor, data: dict[str, Any]
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Returns the loss of one micro-batch and ms-swift's metrics.

        Args:
            output_tensor: [B, T] nats, log-probs of the policy being trained.
            data: With the micro-batch's ``grpo_batch``.

        Raises:
            InvalidRequestError: As in ``GRPOLossMixin``.
        """
        _ms_swift_loss.refuse_others(self)
        mpu = _peers.load("megatron.core").mpu
        batch = data["grpo_batch"]
        mask, truncated = batch.completion_mask, batch.truncated_mask
        if self.args.overlong_filter:
            mask = mask & ~truncated.unsqueeze(-1)
        counts = {
            "backend": "megatron",
            "num_microbatches": self.args.num_microbatches,
            "dp_size": mpu.get_data_parallel_world_size(),
        }
        group = mpu.get_data_parallel_group(with_context_parallel=True)
        loss = _ms_swift_loss.policy_loss(
            self, batch, output_tensor, mask, counts=counts, group=group
        )
        if self.loss_type == "dr_grpo":
            loss = loss * (len(mask) / self.micro_batch_size)
        with torch.no_grad():
            _, metrics = _own(self, MegatronGRPOLossMixin, "loss_func")(
                output_tensor.detach(), data
            )
        return loss, metrics


def _install(trainer: Any, mixin: Any, names: tuple[str, ...]) -> None:
    _service.check()
    if _OWN not in vars(trainer):
        setattr(trainer, _OWN, {})
    for name in names:
        ours = vars(mixin)[name]
        replaced = getattr(trainer, name, None)
        if replaced is not ours:
            getattr(trainer, _OWN)[name] = replaced
            setattr(trainer, name, ours)


def _own(trainer: Any, mixin: type, name: str) -> Any:
    """Returns the trainer's own method, which an installation replaced or a mixin overrides."""
    replaced = getattr(trainer, _OWN, {})
    if name in replaced:
        return replaced[name].__get__(trainer)
    return getattr(super(mixin, trainer), name)


@contextmanager
def _forward(trainer: Any, log_probs: torch.Tensor, entropies: Any) -> Iterator[None]:
    """Gives the trainer's own method the result of the forward pass that was made."""
    name = "_get_per_token_logps_and_entropies"
    before = vars(trainer).get(name)
    setattr(trainer, name, lambda *_, **__: (log_probs, entropies))
    try:
        yield
    finally:
        if before is None:
            delattr(trainer, name)
        else:
            setattr(trainer, name, before)
