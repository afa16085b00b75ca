"""The units of a folder, and their rows."""

from __future__ import annotations

import os
import pathlib
from dataclasses import dataclass
from typing import Any

from counterweight_rl.audit import line_files, npz_files
from counterweight_rl.audit.known_files import SUFFIXES, refuse_by_suffix
from counterweight_rl.audit.rows import SourceError, UnitRows
from counterweight_rl.audit.spec import Spec


@dataclass(frozen=True)
class Unit:
    """A part of a file that is read at once.

    Attributes:
        path: The file.
        group: Index of the row group, or of some megabytes of lines.
        num_bytes: Its size in the file.
    """

    path: str
    group: int
    num_bytes: int


def files(place: str | os.PathLike[str]) -> list[pathlib.Path]:
    """The files of a folder and the folders below it, or the one file, by name."""
    root = pathlib.Path(place)
    if root.is_file():
        return [root]
    found = [path for path in root.rglob("*") if path.suffix in SUFFIXES and path.is_file()]
    return sorted(path for path in found if not path.name.startswith("."))


def units_of(path: pathlib.Path) -> list[Unit]:
    """The units of a file; one that cannot be read has one, and its audit names the reason."""
    try:
        found = [Unit(str(path), i, size) for i, size in enumerate(_module(path).groups(path))]
    except (SourceError, OSError):
        found = []
    return found or [Unit(str(path), 0, _size(path))]


def units(place: str | os.PathLike[str]) -> list[Unit]:
    """The units of all files; reads the ends of Parquet files only."""
    return [unit for path in files(place) for unit in units_of(path)]


def identity(path: pathlib.Path) -> str:
    """A text that changes when a file is written or replaced.

    Raises:
        OSError: It is gone.
    """
    found = path.stat()
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


def read(path: pathlib.Path, group: int, spec: Spec) -> UnitRows:
    """Reads the rows of a unit.

    Raises:
        SourceError: They cannot be audited.
    """
    try:
        module = _module(path)
        modified = path.stat().st_mtime
        count = module.count(path)
        if group >= count:
            raise SourceError("changed while it was read" if count else "has no rows")
        rows: UnitRows = module.read(path, group, spec, modified)
        return rows
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}") from error


def _module(path: pathlib.Path) -> Any:
    refuse_by_suffix(path.suffix)
    if path.suffix == ".jsonl":
        return line_files
    if path.suffix == ".npz":
        return npz_files
    # Only these files need pyarrow, which takes its time to be imported.
    from counterweight_rl.audit import parquet_files

    return parquet_files


def _size(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
