"""The argument ``record`` of a client."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from dataclasses import dataclass

from counterweight_rl.arguments import integer
from counterweight_rl.settings import read_seconds

_BYTES = (1, (1 << 63) - 1)


@dataclass(frozen=True)
class Record:
    """Where a client records the batches that it corrects, and how much of them is kept.

    Attributes:
        folder: Folder of the files, which is made if it is missing. Several processes may share it.
        file_bytes: A file is closed at this size, and another one begun.
        file_seconds: The same for its age, > 0. A process that is killed loses its open file.
        budget_bytes: Most bytes of recorded files in the folder. Beyond it the oldest are deleted,
            whichever process wrote them; at least twice ``file_bytes``.
        queue_bytes: Most bytes of arrays that wait to be written. A batch that does not fit is not
            recorded, and counted; one alone always fits.
    """

    folder: str | os.PathLike[str]
    file_bytes: int = 256 << 20
    file_seconds: float = 300.0
    budget_bytes: int = 64 << 30
    queue_bytes: int = 256 << 20


def read_record(record: str | os.PathLike[str] | Record) -> Record:
    """Returns the settings, and makes the folder.

    Raises:
        TypeError: An argument is of a wrong type.
        ValueError: A number is out of its range, or the folder cannot be made or written.
        ImportError: pyarrow is missing.
    """
    settings = record if isinstance(record, Record) else Record(record)
    if not isinstance(settings.folder, str | os.PathLike):
        kind = type(settings.folder).__name__
        raise TypeError(f"record must be a folder or a Record, not {kind}")
    for name in ("file_bytes", "budget_bytes", "queue_bytes"):
        integer(f"record.{name}", getattr(settings, name), _BYTES)
    read_seconds("record.file_seconds", settings.file_seconds)
    if settings.budget_bytes < 2 * settings.file_bytes:
        raise ValueError(
            f"record.budget_bytes must be at least twice file_bytes, {2 * settings.file_bytes}; "
            f"got {settings.budget_bytes}"
        )
    if importlib.util.find_spec("pyarrow") is None:
        raise ImportError(
            f'record={str(settings.folder)!r} needs pyarrow: pip install "counterweight-rl[record]"'
        )
    folder = pathlib.Path(settings.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"record: cannot make {folder}: {error.strerror or error}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"record: {folder} cannot be written")
    return settings
