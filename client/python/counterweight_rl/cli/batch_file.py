"""Batches in .npz and Parquet files, and their results."""

from __future__ import annotations

import os
import pathlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from counterweight_rl.cli.problems import InputError
from counterweight_rl.result import Result

Array = npt.NDArray[Any]

MASK = "response_mask"
LENGTHS = "sequence_lengths"
VERSIONS = "policy_versions"
SPANS = "version_spans"
GROUPS = "group_ids"
ADVANTAGES = "advantages"
FLOATS = (
    "rollout_log_probs",
    "old_log_probs",
    "current_log_probs",
    "ref_log_probs",
    ADVANTAGES,
)
_NAMES = (*FLOATS, MASK, VERSIONS, LENGTHS, GROUPS, SPANS)
# Those of a Parquet file: columns of lists, and columns that may or must have one number per row.
_LISTS = (*FLOATS, MASK, VERSIONS)
_ONE_PER_ROW = (ADVANTAGES, GROUPS)
_MOST_LISTED = 12
_OUTPUTS = ("weights", "keep_mask", "token_reasons", "sequence_reasons", "gradient")


@dataclass(frozen=True)
class BatchFile:
    """A batch out of a file.

    Attributes:
        path: The file.
        arrays: Arguments of ``Client.correct`` by name.
    """

    path: pathlib.Path
    arrays: Mapping[str, Any]

    def arguments(self, *, has_version: bool = False, has_groups: bool = False) -> dict[str, Any]:
        """The arrays for ``Client.correct``.

        Versions of tokens only beside a policy_version, and groups only for methods that may read
        them.
        """
        unread: tuple[str, ...] = () if has_version else (VERSIONS, SPANS)
        unread += () if has_groups else (GROUPS,)
        return {n: a for n, a in self.arrays.items() if n not in unread}

    @property
    def mask(self) -> Any:
        """The response mask, uint8."""
        return self.arrays[MASK]

    @property
    def lengths(self) -> Any:
        """Positions of each sequence, int64."""
        if LENGTHS in self.arrays:
            return self.arrays[LENGTHS]
        rows, width = self.mask.shape
        return np.full(rows, width, np.int64)


def check_kind(path: pathlib.Path, what: str) -> None:
    """Refuses a file that is neither .npz nor .parquet.

    Raises:
        InputError: It is another kind.
    """
    if path.suffix.lower() not in (".npz", ".parquet"):
        raise InputError(f"{path}: {what} a .npz or a .parquet file")


def read(path: pathlib.Path) -> BatchFile:
    """Reads a batch.

    Raises:
        InputError: It has none; the message names the file and the array.
        ModuleNotFoundError: A Parquet file needs pyarrow.
    """
    check_kind(path, "a batch is")
    if not path.exists():
        raise InputError(f"{path}: there is no such file")
    try:
        found = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_npz(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if MASK not in found:
        raise InputError(
            f"{path}: {MASK}: is missing; the file has {_listed(path)}; a batch has {MASK}, "
            "rollout_log_probs, and old_log_probs or current_log_probs"
        )
    if not any(name in found for name in FLOATS[:3]):
        raise InputError(f"{path}: rollout_log_probs: is missing, as are all other log-probs")
    found = {name: _converted(path, name, array) for name, array in found.items()}
    _check_shapes(path, found)
    return BatchFile(path, found)


def _listed(path: pathlib.Path) -> str:
    """Names of the file's arrays."""
    if path.suffix.lower() == ".parquet":
        from counterweight_rl.cli import parquet

        names = parquet.names(path)
    else:
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
    shown = names[:_MOST_LISTED] + (["..."] if len(names) > _MOST_LISTED else [])
    return ", ".join(shown) or "no array"


def _read_npz(path: pathlib.Path) -> dict[str, Array]:
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: is no .npz file")
    found = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            for name in _NAMES:
                if name in archive.files:
                    found[name] = archive[name]
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        named = next((n for n in _NAMES if n not in found), MASK)
        raise InputError(f"{path}: {named}: cannot be read: {error}") from error
    return found


def _read_parquet(path: pathlib.Path) -> dict[str, Array]:
    from counterweight_rl.cli import parquet

    return parquet.read(path, _LISTS, _ONE_PER_ROW)


def _converted(path: pathlib.Path, name: str, array: Array) -> Array:
    """The array in the machine's byte order, as float16, float32, uint8 or int64."""
    wrong = f"{path}: {name}:"
    if name in FLOATS:
        if array.dtype.kind != "f" or array.dtype.itemsize > 8:
            raise InputError(f"{wrong} must be float16, float32 or float64, not {array.dtype}")
        # Numbers beyond float32 become infinity.
        with np.errstate(over="ignore"):
            return array.astype(np.float16 if array.dtype.itemsize == 2 else np.float32, copy=False)
    if name in (LENGTHS, GROUPS, SPANS, VERSIONS):
        dimensions = {LENGTHS: 1, GROUPS: 1, SPANS: 2}.get(name, array.ndim)
        if array.dtype.kind not in "iu" or array.ndim != dimensions:
            raise InputError(
                f"{wrong} must be {dimensions}-dimensional integers, not {array.ndim}-dimensional "
                f"{array.dtype}"
            )
        if array.dtype.kind == "u" and (array > np.iinfo(np.int64).max).any():
            raise InputError(f"{wrong} must fit into int64")
        if name == LENGTHS and (array < 0).any():
            raise InputError(f"{wrong} must be 0 or more everywhere")
        return array.astype(np.int64, copy=False)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{wrong} must be bool, integers or floats, not {array.dtype}")
    if not ((array == 0) | (array == 1)).all():
        raise InputError(f"{wrong} must be 0 or 1 everywhere")
    return array.astype(np.uint8, copy=False)


def _check_shapes(path: pathlib.Path, found: Mapping[str, Array]) -> None:
    mask = found[MASK]
    packed = LENGTHS in found
    if mask.ndim != (1 if packed else 2):
        needed = f"one-dimensional beside {LENGTHS}" if packed else f"[B, T] without {LENGTHS}"
        raise InputError(f"{path}: {MASK}: must be {needed}; it has shape {list(mask.shape)}")
    if packed and found[LENGTHS].sum() != mask.size:
        raise InputError(
            f"{path}: {LENGTHS}: must add up to the {mask.size} positions of {MASK}; "
            f"the sum is {found[LENGTHS].sum()}"
        )
    rows = len(found[LENGTHS]) if packed else mask.shape[0]
    if GROUPS in found and len(found[GROUPS]) != rows:
        raise InputError(
            f"{path}: {GROUPS}: has {len(found[GROUPS])} elements for {rows} sequences"
        )
    for name in (*FLOATS, VERSIONS):
        if name == ADVANTAGES and name in found and found[name].shape in ((rows,), (rows, 1)):
            continue  # one per sequence; or refused by the client, where both readings fit
        if name in found and found[name].shape != mask.shape:
            raise InputError(
                f"{path}: {name}: has shape {list(found[name].shape)}, but {MASK} has "
                f"{list(mask.shape)}"
            )


def write(path: str | os.PathLike[str], batch: BatchFile, result: Result[Any]) -> None:
    """Writes the arrays of a result in the layout of its batch.

    Raises:
        OSError: It cannot be written.
        ModuleNotFoundError: A Parquet file needs pyarrow.
    """
    path = pathlib.Path(path)
    made = {name: getattr(result, name) for name in _OUTPUTS}
    if path.suffix.lower() == ".parquet":
        from counterweight_rl.cli import parquet

        parquet.write(path, made, batch.lengths)
        return
    there = {name: array for name, array in made.items() if array is not None}
    if LENGTHS in batch.arrays:
        there[LENGTHS] = batch.arrays[LENGTHS]
    with path.open("wb") as file:
        np.savez(file, **there)
