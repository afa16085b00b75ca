"""Advantages of groups over the ranks of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from counterweight_rl.distributed.reduction import Group
from counterweight_rl.group_baseline import (
    Baseline,
    GroupAdvantages,
    group_numbers,
    like,
    reward_numbers,
    row_counts,
)

if TYPE_CHECKING:
    from counterweight_rl.client import Client

# A 64-bit id in float64 numbers.
_HALF = 1 << 32


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
    ids = np.asarray(group_numbers(group_ids), np.int64)
    columns: list[Any] = [numbers, ids >> 32, ids & (_HALF - 1)]
    named = {"tokens": tokens, "kept_tokens": kept_tokens}
    given: dict[str, list[int]] = {
        name: row_counts(name, counts) for name, counts in named.items() if counts is not None
    }
    columns += given.values()
    lengths = {"group_ids": len(ids), **{name: len(counts) for name, counts in given.items()}}
    for name, length in lengths.items():
        if length != len(numbers):
            raise ValueError(f"{name} has {length} rows, rewards {len(numbers)}")
    rows, first = group.gather(np.stack([np.asarray(c, np.float64) for c in columns], axis=1))
    parts = dict(zip(given, rows[:, 3:].T.astype(np.int64), strict=True))
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
