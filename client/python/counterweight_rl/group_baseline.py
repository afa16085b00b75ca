"""Group baselines: their settings, and the call of ``Client.group_advantages``."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias

import numpy as np

from counterweight_rl import messages
from counterweight_rl.arguments import int_list, items, text
from counterweight_rl.arrays.interop import ArrayT, adopt, is_torch
from counterweight_rl.calls import Call, identified
from counterweight_rl.choices import (
    GroupEstimator,
    GroupVoters,
    LonelyGroup,
    RewardStd,
    Whitening,
)
from counterweight_rl.one_process import refuse_at_exit


@dataclass(frozen=True, kw_only=True)
class GroupBaseline:
    """How rewards of groups of answers to one prompt become advantages.

    By default kept rows vote, a group needs two of them, and a group with less has the advantage
    0. Other systems let rejected rows vote: their settings are ``system``.

    Attributes:
        estimator: What is subtracted from a reward. Required without ``system``.
        voters: Rows with rewards that make means and standard deviations. None: KEPT_ROWS.
        fewest_voters: Voters that a group needs, >= 1; RLOO and a group's deviation need 2.
            None: 2.
        lonely: Advantages of a group with less voters. None: ZERO.
        std: What a difference is divided by. None: GROUP for GRPO, else NONE.
        epsilon: Added to standard deviations, >= 0; required where ``std`` divides: verl and SkyRL
            have 1e-6, TRL 1e-4, OpenRLHF 1e-9.
        whitening: Of the advantages over the tokens of all rows, as the last step. None: NONE, but
            SAMPLE for REINFORCE_PP_BASELINE.
        clip: Advantages are clamped to [-clip, clip] before whitening, > 0. None: not clamped.
        system: Another system's function, such as "verl.grpo", instead of all of these.
    """

    estimator: GroupEstimator | None = None
    voters: GroupVoters | None = None
    fewest_voters: int | None = None
    lonely: LonelyGroup | None = None
    std: RewardStd | None = None
    epsilon: float | None = None
    whitening: Whitening | None = None
    clip: float | None = None
    system: str | None = None


Baseline: TypeAlias = GroupBaseline | str


@dataclass(frozen=True)
class GroupAdvantages(Generic[ArrayT]):
    """Advantages of the rows of a step.

    Attributes:
        advantages: [B], float32, of the rewards' kind and device: the argument ``advantages`` of
            ``Client.correct`` and ``policy_loss``, as [B, 1] broadcast over a row's tokens.
        baselines: [B], what was subtracted from each reward.
        metrics: By name: "groups", "lonely_groups", "groups_without_signal", "voters",
            "voters_dropped", "missing_rewards", and means of kept and of rejected rows, such as
            "kept_reward_mean", with their difference in "reward_bias" and "length_bias".
        warnings: Sentences that are not errors.
    """

    advantages: ArrayT
    baselines: ArrayT
    metrics: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def group_advantages(
    rewards: ArrayT,
    group_ids: Iterable[int] | ArrayT,
    baseline: Baseline,
    *,
    tokens: Iterable[int] | ArrayT | None = None,
    kept_tokens: Iterable[int] | ArrayT | None = None,
    request_id: str | None = None,
    timeout: float | None = None,
) -> Call[GroupAdvantages[ArrayT]]:
    """Builds the call of ``Client.group_advantages``."""
    refuse_at_exit()
    request_id = uuid.uuid4().hex if request_id is None else text("request_id", request_id)
    with identified(request_id):
        numbers = reward_numbers(rewards)
        for i in np.flatnonzero(np.isinf(numbers)):
            raise ValueError(f"rewards[{i}] must not be infinite; NaN is a row without a reward")
        message: messages.Message = {
            "request_id": request_id,
            "baseline": _settings(baseline),
            "rewards": numbers.tolist(),
            "group_ids": group_numbers(group_ids),
            "tokens": row_counts("tokens", tokens),
            "kept_tokens": row_counts("kept_tokens", kept_tokens),
        }

        def read(answer: messages.Message) -> GroupAdvantages[ArrayT]:
            return GroupAdvantages(
                like(rewards, answer.get("advantages", ())),
                like(rewards, answer.get("baselines", ())),
                {name: float(value) for name, value in sorted(answer.get("metrics", {}).items())},
                tuple(answer.get("warnings", ())),
            )

        return Call("GroupAdvantages", read, timeout, request_id, message=message)


def _settings(baseline: Baseline) -> messages.Message:
    if isinstance(baseline, str):
        return {"system": baseline}
    if not isinstance(baseline, GroupBaseline):
        raise TypeError(
            "baseline must be a GroupBaseline or the name of a system's, not "
            f"{type(baseline).__name__}"
        )
    return messages.to_message("baseline", baseline, GroupBaseline)


def reward_numbers(rewards: Any) -> Any:
    """Returns rewards [B] as float32 on the host.

    Raises:
        TypeError: They are no numpy array, torch tensor or sequence of numbers.
        ValueError: They have another shape.
    """
    if isinstance(rewards, (list, tuple)):
        rewards = np.asarray(items("rewards", rewards, "an array of numbers"), np.float32)
    rewards = adopt("rewards", rewards)
    if rewards.ndim != 1:
        raise ValueError(
            f"rewards must be [B], one for each row; its shape is {tuple(rewards.shape)}"
        )
    if is_torch(rewards):
        rewards = rewards.detach().float().cpu().numpy()
    return np.asarray(rewards, np.float32)


def group_numbers(group_ids: Any) -> list[int]:
    """Returns group ids as integers; strings, such as verl's uid, are numbered by their order."""
    listed = items("group_ids", group_ids, "a sequence of integers or strings")
    if listed and all(isinstance(each, str) for each in listed):
        numbers: list[int] = np.unique(listed, return_inverse=True)[1].tolist()
        return numbers
    return int_list("group_ids", listed)


def row_counts(name: str, counts: Any) -> list[int]:
    """Returns counts [B]; those of a mask [B, T] are its elements other than 0."""
    if counts is None:
        return []
    if getattr(counts, "ndim", 1) == 2:
        mask = adopt(name, counts)
        counts = (mask != 0).sum(1)
    return int_list(name, counts)


def like(rewards: Any, numbers: Iterable[float]) -> Any:
    """Returns float32 numbers as an array of the rewards' kind."""
    made = np.array([float(number) for number in numbers], np.float32)
    if not is_torch(rewards):
        return made
    import torch

    return torch.from_numpy(made).to(rewards.device)
