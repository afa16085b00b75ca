"""Advantage estimators of verl's form, in which rejected rows do not vote."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from counterweight_rl.choices import GroupEstimator
from counterweight_rl.compat import _service
from counterweight_rl.group_baseline import GroupBaseline
from counterweight_rl.stack_level import stack_level

Estimator = Callable[..., tuple[torch.Tensor, torch.Tensor]]

# verl's epsilon.
_GRPO = GroupBaseline(estimator=GroupEstimator.GRPO, epsilon=1e-6)
_BASELINES = {
    "grpo": _GRPO,
    "grpo_without_std": GroupBaseline(estimator=GroupEstimator.DR_GRPO),
    "rloo": GroupBaseline(estimator=GroupEstimator.RLOO),
    "reinforce_plus_plus_baseline": GroupBaseline(estimator=GroupEstimator.REINFORCE_PP_BASELINE),
}


def _estimator(baseline: GroupBaseline) -> Estimator:
    def advantages(
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        index: Any,
        config: Any = None,
        **_: Any,  # verl passes what others need
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes advantages by the rows that ``response_mask`` keeps.

        Args:
            token_level_rewards: [B, T]; a row's reward is the sum.
            response_mask: [B, T], each 0 or 1, after rejection.
            index: [B], the prompt of each row.
            config: verl's, of which norm_adv_by_std_in_grpo is read.

        Returns:
            Advantages [B, T], 0 where the mask is 0, and the same as returns.

        Raises:
            ValueError: The estimator divides by a deviation, and the config says not to.
        """
        by_std = True if config is None else config.get("norm_adv_by_std_in_grpo", True)
        if baseline is _GRPO and not by_std:
            raise ValueError(
                "norm_adv_by_std_in_grpo: counterweight_grpo divides by the standard deviation; "
                "take adv_estimator=counterweight_grpo_without_std"
            )
        with torch.no_grad():
            answer = _service.client().group_advantages(
                token_level_rewards.sum(-1), index, baseline, kept_tokens=response_mask
            )
            for sentence in answer.warnings:
                warnings.warn(sentence, stacklevel=stack_level())
            values = answer.advantages.unsqueeze(-1) * response_mask
        return values, values

    return advantages


ADV_ESTIMATORS: dict[str, Estimator] = {
    name: _estimator(baseline) for name, baseline in _BASELINES.items()
}
"""By verl's name."""
