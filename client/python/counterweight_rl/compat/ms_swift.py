"""ms-swift's weights: ``swift.rlhf_trainers.grpo_trainer.GRPOTrainer``.

    # in a file of --external_plugins
    from swift.rlhf_trainers.grpo_trainer import GRPOTrainer
    from counterweight_rl.compat.ms_swift import RolloutCorrectionMixin

    RolloutCorrectionMixin.install(GRPOTrainer)

or, for a trainer of your own, ``class Trainer(RolloutCorrectionMixin, GRPOTrainer)``. It follows
ms-swift 4.6.0; numbers and quirks are those of the dialect ``ms_swift``. The loss and the metrics
stay ms-swift's own.
"""

from __future__ import annotations

from typing import Any

import torch

from counterweight_rl.compat import _service

__all__ = ["RolloutCorrectionMixin"]

_MODE = "rollout_importance_sampling_mode"
_THRESHOLD = "rollout_importance_sampling_threshold"


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
            {_MODE: getattr(self, _MODE), _THRESHOLD: getattr(self, _THRESHOLD), "beta": 0.0},
            # Log-probs with this difference, both at most 0.
            old_log_probs=ratio.clamp(max=0),
            rollout_log_probs=-ratio.clamp(min=0),
            response_mask=completion_mask,
            release="",  # the weights of all releases are the same
            own_warning="Metrics of ms_swift",
        )
        weights: torch.Tensor = result.weights.to(rollout_log_ratio.dtype)
        return weights
