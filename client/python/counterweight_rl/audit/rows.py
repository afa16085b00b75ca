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
class Versions:
    """Which versions sampled the tokens of each row that count.

    A run has such tokens, and one version.

    Attributes:
        low: The least of each row, int64; -1 = unknown, and of rows without tokens.
        high: The largest.
        run_row: The row of each run.
        run_version: Its version.
        run_begin: Its first position in the unit.
        run_end: The position behind it.
    """

    low: Array
    high: Array
    run_row: Array
    run_version: Array
    run_begin: Array
    run_end: Array

    @property
    def is_mixed(self) -> Array:
        """Whether a row has several."""
        is_mixed: Array = self.high > self.low
        return is_mixed


@dataclass(frozen=True)
class UnitRows:
    """Rows, a sequence after the other.

    Attributes:
        rollout: Log-probs of the policy that sampled, float32.
        old: Log-probs of the trainer's policy, float32.
        mask: 1 = the token counts, uint8.
        versions: Version that sampled each token, int32 or int64; -1 = unknown. Of each sequence,
            if it is one for all tokens of each.
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
    def has_row_versions(self) -> bool:
        """Whether ``versions`` are of sequences."""
        return len(self.versions) == len(self.lengths) != len(self.mask)

    @cached_property
    def begins(self) -> Array:
        """The first position of each sequence."""
        begins: Array = np.cumsum(self.lengths) - self.lengths
        return begins

    @cached_property
    def tokens(self) -> Array:
        """The tokens of each sequence that count, int64."""
        tokens = np.zeros(len(self.lengths), np.int64)
        has = self.lengths > 0
        if has.any():
            tokens[has] = np.add.reduceat(self.mask, self.begins[has], dtype=np.int64)
        return tokens

    @cached_property
    def firsts(self) -> Array:
        """The first position of each sequence that counts; behind it without one."""
        has = self.lengths > 0
        at_begin = self.mask[self.begins[has]] != 0
        firsts: Array = self.begins.copy()
        for row in np.flatnonzero(has)[~at_begin].tolist():
            begin, length = self.begins[row], self.lengths[row]
            within = self.mask[begin : begin + length].view(np.bool_)
            first = int(within.argmax())
            firsts[row] += first if within[first] else length
        return firsts

    @cached_property
    def of_versions(self) -> Versions:
        """The versions of each row."""
        if self.has_row_versions:
            here = np.flatnonzero(self.tokens > 0)
            version = self.versions[here].astype(np.int64)
            one = np.where(self.tokens > 0, self.versions, -1)
            begin = self.begins[here]
            return Versions(one, one, here, version, begin, begin + self.lengths[here])
        low = np.full(len(self.lengths), -1)
        high = low.copy()
        begins = self.begins[self.lengths > 0]
        if not len(begins):
            return Versions(low, high, *[np.empty(0, np.int64)] * 4)
        changes = np.flatnonzero(self.versions[1:] != self.versions[:-1]) + 1
        begin = np.union1d(begins, changes)
        end = np.append(begin[1:], len(self.mask))
        has = np.add.reduceat(self.mask, begin, dtype=np.int64) > 0
        begin, end = begin[has], end[has]
        row = np.flatnonzero(self.lengths > 0)[np.searchsorted(begins, begin, side="right") - 1]
        version = self.versions[begin].astype(np.int64)
        if len(row):
            first = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
            low[row[first]] = np.minimum.reduceat(version, first)
            high[row[first]] = np.maximum.reduceat(version, first)
        return Versions(low, high, row, version, begin, end)

    @cached_property
    def stale_versions(self) -> Array:
        """The version of each token, int32; staleness counts back from NEWEST, -1 = unknown."""
        versions, trained = self.versions, int(self.trained[0])
        if (
            versions.dtype == np.int32
            and 0 <= trained <= NEWEST
            and (self.trained == trained).all()
            and versions.min(initial=0) >= 0
            and versions.max(initial=0) <= trained
        ):
            return self._of_tokens(versions + np.int32(NEWEST - trained))
        # Rows of an unknown trainer's version get a shift that no version survives.
        shifts = np.where(self.trained < 0, 2 * NEWEST, NEWEST - self.trained)
        stale = versions + (shifts if self.has_row_versions else np.repeat(shifts, self.lengths))
        stale[(versions < 0) | (stale < 0) | (stale > NEWEST)] = -1
        return self._of_tokens(stale.astype(np.int32))

    def _of_tokens(self, versions: Array) -> Array:
        return np.repeat(versions, self.lengths) if self.has_row_versions else versions


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
    reals = {}
    for name in ("rollout_log_probs", "old_log_probs"):
        if lists[name].dtype.kind != "f":
            raise SourceError(f"{name} must be floating, not {lists[name].dtype}")
        with np.errstate(over="ignore"):
            reals[name] = np.ascontiguousarray(lists[name], np.float32)
    versions = lists.get("policy_versions")
    if versions is None:
        of_rows = numbers("policy_versions")
        versions = np.full(len(lengths), -1) if of_rows is None else of_rows
        if len(lengths) == len(lists["response_mask"]):
            versions = np.repeat(versions, lengths)  # has_row_versions counts
    if versions.min(initial=0) < -1:
        versions = np.maximum(versions, -1)
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
        mask=_mask(lists["response_mask"]),
        versions=versions if versions.dtype == np.int32 else versions.astype(np.int64),
        trained=np.full(len(lengths), -1) if trained is None else trained.astype(np.int64),
        lengths=lengths,
        labels=named,
        problems=problems,
    )


def _mask(values: Array) -> Array:
    if values.dtype == np.bool_:
        return np.ascontiguousarray(values).view(np.uint8)
    if not ((values == 0) | (values == 1)).all():
        raise SourceError("response_mask must be 0 or 1 everywhere")
    return np.ascontiguousarray(values, np.uint8)
