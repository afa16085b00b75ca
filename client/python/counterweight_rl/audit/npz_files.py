"""Rows of .npz files, which ``counterweight correct`` reads too: one unit each."""

from __future__ import annotations

import pathlib
import zipfile
from collections.abc import Mapping

import numpy as np

from counterweight_rl.audit.known_files import refuse_unless_complete
from counterweight_rl.audit.rows import Array, SourceError, UnitRows, make
from counterweight_rl.audit.spec import ROLES, Spec

_LISTS = ("rollout_log_probs", "old_log_probs", "response_mask", "policy_versions")
_LENGTHS = "sequence_lengths"


def groups(path: pathlib.Path) -> list[int]:
    """The bytes of the one unit."""
    return [path.stat().st_size]


def count(path: pathlib.Path) -> int:
    """One."""
    del path
    return 1


def read(path: pathlib.Path, group: int, spec: Spec, modified: float) -> UnitRows:
    """Reads a file.

    Raises:
        SourceError: It cannot be audited.
    """
    del group
    arrays = _arrays(path, spec)
    found = {role: arrays[role] for role in _LISTS if role in arrays}
    mask = found["response_mask"]
    if _LENGTHS in arrays:
        lengths = arrays[_LENGTHS].astype(np.int64)
    elif mask.ndim == 2:
        lengths = np.full(mask.shape[0], mask.shape[1], np.int64)
    else:
        raise SourceError(f"response_mask must be [B, T], or one-dimensional beside {_LENGTHS}")
    per_row = found.get("policy_versions")
    if per_row is not None and per_row.shape != mask.shape:
        del found["policy_versions"]
    for role, array in found.items():
        if array.shape != mask.shape or array.size != lengths.sum():
            raise SourceError(f"{role} has shape {array.shape}, and response_mask {mask.shape}")
    if spec.since is not None and modified < spec.since:
        found, lengths = {role: array[:0] for role, array in found.items()}, lengths[:0]

    def numbers(role: str) -> Array | None:
        if role not in arrays or role in found:
            return None
        if arrays[role].dtype.kind not in "iu" or arrays[role].ndim > 1:
            raise SourceError(f"{role} must be integers, one or one for each sequence")
        return np.broadcast_to(arrays[role].astype(np.int64), lengths.shape)

    labels: dict[str, Array | None] = {
        name: np.broadcast_to(arrays[name].astype(np.str_), lengths.shape)
        if name in arrays
        else None
        for name in ("step", "replica")
    }
    return make({r: a.reshape(-1) for r, a in found.items()}, lengths, numbers, labels, {})


def _arrays(path: pathlib.Path, spec: Spec) -> Mapping[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            there = archive.files
            names = {
                role: name
                for role in ROLES
                if (name := next((n for n in spec.names(role) if n in there), None)) is not None
            }
            names.pop("response_id", None)  # such files are not joined with responses
            refuse_unless_complete(names, there, spec)
            if _LENGTHS in there:
                names[_LENGTHS] = _LENGTHS
            return {role: archive[name] for role, name in names.items()}
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError) as error:
        raise SourceError(f"cannot be read: {error}") from error
