"""The rows of one unit: a row group of Parquet, or some megabytes of lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
NEWEST = 1 << 30
"""Policy version used for the trainer's; staleness counts back from it."""


class SourceError(Exception):
    """A sentence about a file, or a part of one, that cannot be audited."""


@dataclass(frozen=True)
class UnitRows:
    """Rows, a sequence after the other.

    Attributes:
        rollout: Log-probs of the policy that sampled, float32.
        old: Log-probs of the trainer's policy, float32.
        mask: 1 = the token counts, uint8.
        versions: Version that sampled each token, int64; -1 = unknown.
        trained: The trainer's version of each sequence, int64; -1 = unknown.
        lengths: Positions of each sequence, int64.
        labels: A text for each sequence, by "step" and "replica".
        problems: Sentences about rows that are left out, and how many each is about.
    """

    rollout: Array
    old: Array
    mask: Array
    versions: Array
    trained: Array
    lengths: Array
    labels: Mapping[str, Array]
    problems: Mapping[str, int]

    @property
    def begins(self) -> Array:
        """The first position of each sequence."""
        begins: Array = np.cumsum(self.lengths) - self.lengths
        return begins

    @cached_property
    def stale_versions(self) -> Array:
        """The versions as int32, counted back from NEWEST; -1 = unknown."""
        # Rows of an unknown trainer's version get a shift that no version survives.
        shifts = np.where(self.trained < 0, 2 * NEWEST, NEWEST - self.trained)
        stale = self.versions + np.repeat(shifts, self.lengths)
        stale[(self.versions < 0) | (stale < 0) | (stale > NEWEST)] = -1
        made: Array = stale.astype(np.int32)
        return made


def make(
    lists: Mapping[str, Array],
    lengths: Array,
    numbers: Callable[[str], Array | None],
    labels: Mapping[str, Array | None],
    problems: Mapping[str, int],
) -> UnitRows:
    """Checks columns and brings them into one form.

    Args:
        lists: Columns of one value per position.
        lengths: Positions of each sequence.
        numbers: Returns a column of one integer per sequence, or None.
        labels: Texts of each sequence.
        problems: See ``UnitRows``.

    Raises:
        SourceError: A column has other values than it may have.
    """
    mask = lists["response_mask"]
    if not ((mask == 0) | (mask == 1)).all():
        raise SourceError("response_mask must be 0 or 1 everywhere")
    reals = {}
    for name in ("rollout_log_probs", "old_log_probs"):
        if lists[name].dtype.kind != "f":
            raise SourceError(f"{name} must be floating, not {lists[name].dtype}")
        with np.errstate(over="ignore"):
            reals[name] = np.ascontiguousarray(lists[name], np.float32)
    versions = lists.get("policy_versions")
    if versions is None:
        of_rows = numbers("policy_versions")
        versions = np.repeat(np.full(len(lengths), -1) if of_rows is None else of_rows, lengths)
    trained = numbers("policy_version")
    unknown = np.full(len(lengths), "unknown")
    named = {name: unknown if v is None else v for name, v in labels.items()}
    if trained is not None:
        # Trainers that do not name their steps number them by their versions.
        is_named = (named["step"] != "unknown") | (trained < 0)
        named["step"] = np.where(is_named, named["step"], trained.astype(np.str_))
    return UnitRows(
        rollout=reals["rollout_log_probs"],
        old=reals["old_log_probs"],
        mask=np.ascontiguousarray(mask, np.uint8),
        versions=versions.astype(np.int64),
        trained=np.full(len(lengths), -1) if trained is None else trained.astype(np.int64),
        lengths=lengths,
        labels=named,
        problems=problems,
    )
