"""The files of a folder of recorded rows."""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import os
import pathlib
import socket
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from counterweight_rl.recording import table

PREFIX, SUFFIX, OPEN = "counterweight-", ".parquet", ".open"
_log = logging.getLogger(__name__)


class _Sink(io.FileIO):
    """A file that only the process writes that opened it: its forked children hold it too."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(str(path), "xb")
        self._owner = os.getpid()
        self._end = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if os.getpid() == self._owner:
            done = 0
            while done < len(view):
                done += super().write(view[done:])
        self._end += len(view)
        return len(view)

    def tell(self) -> int:
        return self._end


class OpenFile:
    """One file while it grows; ``finish`` gives it its name.

    Attributes:
        path: The name that it gets.
        sequences: Rows in it.
        begun: When it was opened, on the monotonic clock.
    """

    def __init__(self, path: pathlib.Path, schema: Any) -> None:
        """Opens it.

        Raises:
            OSError: It cannot be made.
        """
        self.path = path
        self.sequences = 0
        self.begun = time.monotonic()
        self._temporary = path.with_name(path.name + OPEN)
        self._sink = _Sink(self._temporary)
        # A file without this lock is of a process that was killed.
        fcntl.flock(self._sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"), schema, **table.options(schema)
        )

    @property
    def num_bytes(self) -> int:
        """Bytes written by now."""
        return self._sink.tell()

    def write(self, rows: Any) -> None:
        """Appends a table as one row group.

        Raises:
            OSError: The disk is full, or gone.
        """
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self.sequences += rows.num_rows

    def finish(self) -> None:
        """Writes the end and gives the file its name, at once or not at all.

        Raises:
            OSError: The disk is full, or gone.
        """
        self._writer.close()
        os.fsync(self._sink.fileno())
        os.rename(self._temporary, self.path)
        self._sink.close()

    def abandon(self) -> None:
        """Deletes it."""
        with contextlib.suppress(OSError, pa.ArrowException, ValueError):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._sink.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink()


class Folder:
    """Names new files, and deletes old ones beyond the budget."""

    def __init__(self, path: pathlib.Path, budget_bytes: int) -> None:
        """Deletes what killed processes left half-written."""
        self.deleted = 0
        self._path = path
        self._budget = budget_bytes
        self._made = 0
        for left in path.glob(f"{PREFIX}*{SUFFIX}{OPEN}"):
            _delete_if_left(left)

    def open(self, schema: Any) -> OpenFile:
        """Opens a file with a name that sorts behind those of earlier ones.

        Raises:
            OSError: It cannot be made.
        """
        self._made += 1
        now = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}"
        own = f"{socket.gethostname()}-{os.getpid()}-{self._made:04}"
        return OpenFile(self._path / f"{PREFIX}{stamp}Z-{own}{SUFFIX}", schema)

    def keep_budget(self, open_bytes: int) -> None:
        """Deletes the oldest files while there is more than the budget, open files included."""
        sizes = []
        for path in sorted(self._path.glob(f"{PREFIX}*{SUFFIX}")):
            with contextlib.suppress(OSError):  # another process deleted it
                sizes.append((path, path.stat().st_size))
        total = open_bytes + sum(size for _, size in sizes)
        for path, size in sizes:
            if total <= self._budget:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                self.deleted += 1
                if self.deleted == 1:
                    _log.warning("%s has reached its budget; the oldest files go", self._path)
            total -= size


def _delete_if_left(path: pathlib.Path) -> None:
    with contextlib.suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
