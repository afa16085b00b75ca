"""Batches of rewards: 2 to 24 rows by fixed seeds, each for one property."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import torch

NAN = math.nan


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rewards of B answers; the first kept_tokens of an answer's tokens are kept."""

    name: str
    note: str
    rewards: list[float]
    group_ids: list[int]
    tokens: list[int]
    kept_tokens: list[int]

    @property
    def size(self) -> int:
        """The size of all groups, or that of the largest."""
        return max(Counter(self.group_ids).values())

    @property
    def equal(self) -> bool:
        """Groups have one size."""
        return len(set(Counter(self.group_ids).values())) == 1

    @property
    def consecutive(self) -> bool:
        """Groups have one size and each is consecutive rows."""
        ids = np.array(self.group_ids)
        if len(ids) % self.size:
            return False
        rows = ids.reshape(-1, self.size)
        return self.equal and bool((rows == rows[:, :1]).all())

    def mask(self, dtype: torch.dtype) -> torch.Tensor:
        """Returns the mask after rejection, [B, T]."""
        positions = torch.arange(max(self.tokens))
        return (positions < torch.tensor(self.kept_tokens)[:, None]).to(dtype)

    def token_rewards(self, dtype: torch.dtype) -> torch.Tensor:
        """Returns the rewards at each answer's last token, rejected or not, [B, T]."""
        rewards = torch.zeros(len(self.tokens), max(self.tokens), dtype=dtype)
        values = self.row_rewards(dtype)
        rewards[torch.arange(len(values)), torch.tensor(self.tokens) - 1] = values
        return rewards

    def row_rewards(self, dtype: torch.dtype) -> torch.Tensor:
        """Returns the float32 values, [B]."""
        return torch.tensor(self.rewards, dtype=torch.float32).to(dtype)


def _batch(
    name: str,
    note: str,
    sizes: list[int],
    rewards: list[float] | None = None,
    *,
    dropped: tuple[int, ...] | str = (),
    half: tuple[int, ...] = (),
    ids: tuple[int, ...] | None = None,
    shuffled: bool = False,
    lengths: list[int] | None = None,
) -> Batch:
    rng = np.random.default_rng(list(name.encode()))
    groups = [(ids or range(len(sizes)))[g] for g, n in enumerate(sizes) for _ in range(n)]
    if rewards is None:
        rewards = [float(r) for r in rng.normal(0.5, 2, len(groups)).round(3)]
    tokens = lengths or [int(n) for n in rng.integers(2, 7, len(groups))]
    gone = range(len(groups)) if dropped == "all" else dropped
    kept = [0 if i in gone else n // 2 if i in half else n for i, n in enumerate(tokens)]
    rows = list(zip(rewards, groups, tokens, kept, strict=True))
    if shuffled:
        rows = [rows[i] for i in rng.permutation(len(rows))]
    return Batch(name, note, *(list(column) for column in zip(*rows, strict=True)))


def _binary(count: int, seed: int) -> list[float]:
    return [float(r) for r in np.random.default_rng(seed).integers(0, 2, count)]


# fmt: off
BATCHES = [
    _batch("ragged", "groups of 4, 2, 3 and 1", [4, 2, 3, 1]),
    _batch("uniform", "three groups of 4, one-token answers among them", [4, 4, 4],
           lengths=[1, 6, 3, 2, 5, 1, 4, 2, 6, 3, 1, 5]),
    _batch("pair", "one group of two rows", [2], [1.5, -0.25]),
    _batch("singles", "groups of one", [1] * 5, [1.0, -2.5, 0.0, 0.75, 1.0]),
    _batch("equal", "equal rewards within each group", [4, 4, 4], [1.0] * 4 + [0.1] * 4 + [-2.5] * 4),
    _batch("equal_rounding", "equal rewards within each group, of which float32 rounds the mean", [8, 8, 8],
           [0.3] * 8 + [0.6] * 8 + [1.3] * 8),
    _batch("all_equal_zero", "all rewards 0", [2, 2], [0.0] * 4),
    _batch("tiny", "deviations not far from epsilons", [4, 4],
           [1e-5, 2e-5, 4e-5, -1e-5, 2e-6, 0.0, -1e-6, 3e-6]),
    _batch("interleaved", "ids 40, 7, 19 and 3, rows shuffled", [3, 3, 3, 3], ids=(40, 7, 19, 3), shuffled=True),
    _batch("interleaved_ragged", "groups of 5, 1, 3 and 2, rows shuffled", [5, 1, 3, 2], ids=(9, 4, 0, 12),
           shuffled=True),
    _batch("large", "rewards 1e4 apart", [4, 4], [10000.5, -9999.25, 0.125, 3.0, -10000.0, 10000.0, 9999.5, -0.5]),
    _batch("large_offset", "rewards close to each other, far from 0", [4, 4],
           [10000.5, 10001.25, 9999.0, 10000.0, -5000.5, -5000.25, -5001.0, -5002.0]),
    _batch("negative", "all rewards negative, some close", [4, 4],
           [-5.001, -5.002, -5.004, -5.008, -0.5, -0.25, -0.125, -4.0]),
    _batch("binary", "24 rewards of 0 and 1", [8, 8, 8], _binary(24, 5)),
    _batch("lone_success", "one 1 among 0s, and one 0 among 1s", [5, 5],
           [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0]),
    _batch("nan", "a NaN reward in the first of two groups", [3, 3], [1.0, NAN, 0.5, 2.0, -1.0, 0.25]),
    _batch("nan_pair", "a group of which one of two rewards is NaN", [2, 2, 2], [NAN, 1.0, 0.5, 2.0, -1.0, 0.25]),
    _batch("nan_single", "a NaN reward in a group of one", [1, 1, 1], [NAN, 1.0, 0.5]),
    _batch("nan_rejected", "the row with a NaN reward is rejected", [3, 3], [1.0, NAN, 0.5, 2.0, -1.0, 0.25],
           dropped=(1,)),
    _batch("one_survivor", "of 3 rows one is kept, of 3 all, of 2 none", [3, 3, 2], dropped=(0, 2, 6, 7)),
    _batch("outlier_rejected", "the row with reward 100 is rejected, its group keeps one row", [2, 2],
           [100.0, 1.0, 0.0, 1.0], dropped=(0,)),
    _batch("none_kept", "no token is kept", [3, 2], dropped="all"),
    _batch("one_token_kept", "one token is kept", [2, 2], [1.0, 0.0, 0.5, 0.25], dropped=(0, 1, 3),
           lengths=[4, 2, 1, 3]),
    _batch("rejected", "24 rows, of which 9 are rejected", [6, 6, 6, 6], _binary(24, 8),
           dropped=(0, 3, 5, 6, 13, 14, 16, 20, 23)),
    _batch("half_rejected", "rows of which half the tokens are kept, and a rejected one", [4, 3, 2],
           dropped=(2,), half=(0, 1, 5, 8)),
    _batch("half_rejected_uniform", "the same with groups of one size", [4, 4], dropped=(2,), half=(0, 1, 5, 7)),
    _batch("ragged_multiple", "groups of 3, 1 and 4: the rows are a multiple of the largest group", [3, 1, 4]),
]
# fmt: on

# Enough for functions that are another one with a small change, or that no dialect has.
FEW = [
    batch
    for batch in BATCHES
    if batch.name
    in {
        "ragged",
        "uniform",
        "singles",
        "equal_rounding",
        "binary",
        "nan",
        "half_rejected",
        "none_kept",
    }
]
