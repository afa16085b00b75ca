"""Advantages of groups over the ranks of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from counterweight_rl.arguments import int_list
from counterweight_rl.distributed.reduction import Group
from counterweight_rl.group_baseline import (
    Baseline,
    GroupAdvantages,
    like,
    reward_numbers,
    row_counts,
)

if TYPE_CHECKING:
    from counterweight_rl.client import Client

# A 64-bit id in float64 numbers.
_HALF = 1 << 32
_COUNTS = ("tokens", "kept_tokens")
# No count, which the server refuses as one.
_NOT_GIVEN = -(1 << 53)


def of_ranks(
    client: Client,
    group: Group,
    rewards: Any,
    group_ids: Any,
    baseline: Baseline,
    tokens: Any,
    kept_tokens: Any,
) -> GroupAdvantages[Any]:
    """See ``Step.group_advantages``."""
    numbers = reward_numbers(rewards)
    # Texts would have other numbers on another rank.
    ids = np.asarray(int_list("group_ids", group_ids), np.int64)
    named: dict[str, Any] = {"group_ids": ids, "tokens": tokens, "kept_tokens": kept_tokens}
    columns: list[Any] = [numbers, ids >> 32, ids & (_HALF - 1)]
    for name in _COUNTS:
        if named[name] is None:
            named[name] = [_NOT_GIVEN] * len(numbers)
        else:
            named[name] = row_counts(name, named[name])
        columns.append(named[name])
    for name, column in named.items():
        if len(column) != len(numbers):
            raise ValueError(f"{name} has {len(column)} rows, rewards {len(numbers)}")
    rows, first = group.gather(np.stack([np.asarray(c, np.float64) for c in columns], axis=1))
    parts: dict[str, Any] = {}
    for name, column in zip(_COUNTS, rows[:, 3:].T.astype(np.int64), strict=True):
        is_given = column != _NOT_GIVEN
        if is_given.any() and not is_given.all():
            raise ValueError(f"{name} is given by some ranks; all need it, or none")
        if is_given.any():
            parts[name] = column
    answer: GroupAdvantages[Any] = client.group_advantages(
        like(rewards, rows[:, 0]),
        rows[:, 1].astype(np.int64) * _HALF + rows[:, 2].astype(np.int64),
        baseline,
        **parts,
    )
    own = slice(first, first + len(numbers))
    return GroupAdvantages(
        answer.advantages[own], answer.baselines[own], answer.metrics, answer.warnings
    )
