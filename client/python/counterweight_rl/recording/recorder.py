"""The queue and the thread between calls of ``correct`` and the files: ``Client(record=...)``."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import pathlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent import futures
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from counterweight_rl.one_process import OneProcess
from counterweight_rl.recording import rows as of_call
from counterweight_rl.recording.rows import Rows
from counterweight_rl.recording.settings import Record, read_record
from counterweight_rl.result import Result

if TYPE_CHECKING:
    from counterweight_rl.recording.folder import Folder, OpenFile

CLOSE_SECONDS = 10.0
"""Longest wait for the rest when the client is closed or the process ends."""
GROUP_POSITIONS = 1 << 20
"""Positions from which on waiting rows become a row group: readers hold one in memory."""

_log = logging.getLogger(__name__)
Call = Mapping[str, Any]


def open_recorder(record: str | os.PathLike[str] | Record | None) -> Recorder | None:
    """Returns the recorder of a client.

    Raises:
        TypeError: As ``read_record``.
        ValueError: The same.
        ImportError: The same.
    """
    return None if record is None else Recorder(read_record(record))


class Recorder(OneProcess):
    """Writes rows from one thread, for which no call ever waits. Thread-safe.

    A forked child begins anew, with files of its own.
    """

    def __init__(self, settings: Record) -> None:
        """Opens no file and starts no thread yet."""
        self._settings = settings
        self._begin()
        _recorders.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Rows] = deque()
        self._waiting_bytes = 0
        self._thread: threading.Thread | None = None
        self._end: float | None = None  # of the flush, on the monotonic clock
        self._accepted = 0
        self._recorded = 0
        self._failed = 0
        self._dropped = 0
        self._warned: set[str] = set()

    def begin_in_child(self) -> None:
        """Forgets what the parent does, which finishes its own files."""
        self._begin()

    @property
    def recorded(self) -> int:
        """Sequences in finished files."""
        return self._recorded

    @property
    def dropped(self) -> int:
        """Sequences that were not recorded, or that are in a file that failed."""
        return self._dropped

    def around_sync(self, correct: Callable[[Call], Result[Any]]) -> Callable[[Call], Result[Any]]:
        """Returns ``correct`` with recording."""

        def recorded(call: Call) -> Result[Any]:
            result = correct(call)
            self.put(self.copy(call), result)
            return result

        return recorded

    def around_aio(
        self, correct: Callable[[Call], Awaitable[Result[Any]]]
    ) -> Callable[[Call], Awaitable[Result[Any]]]:
        """Returns ``correct`` with recording."""

        async def recorded(call: Call) -> Result[Any]:
            result = await correct(call)
            self.put(self.copy(call), result)
            return result

        return recorded

    def follow(self, copied: Rows | None, future: futures.Future[Any]) -> None:
        """Records the rows of a call in the background when it has succeeded."""

        def record(done: futures.Future[Any]) -> None:
            if done.exception() is None:
                self.put(copied, done.result())

        future.add_done_callback(record)

    def copy(self, call: Call) -> Rows | None:
        """Copies a call's arrays; None: it is not recorded, and counted unless it repeats rows."""
        if not of_call.is_recorded(call):
            return None
        try:
            if not self._has_room(of_call.size(call)):
                why = "more batches wait than queue_bytes holds"
            elif (copied := of_call.copy(call)) is not None:
                return copied
            else:
                why = "they lack rollout_log_probs, or both old_log_probs and current_log_probs"
            self._drop(of_call.sequences(call), why)
        except Exception as error:  # a call that was answered must not fail for its record
            self._drop(1, str(error))
        return None

    def put(self, copied: Rows | None, result: Result[Any]) -> None:
        """Writes the rows of an answered call later; drops them if too many wait."""
        if copied is None:
            return
        labels = {"request_id": result.request_id, "numerics_version": result.numerics_version}
        copied = replace(copied, labels={**copied.labels, **labels})
        with self._changed:
            if self._end is None and self._fits(copied.num_bytes) and self._runs():
                self._waiting.append(copied)
                self._waiting_bytes += copied.num_bytes
                self._accepted += len(copied.lengths)
                self._changed.notify_all()
                return
        self._drop(len(copied.lengths), "more batches wait than queue_bytes holds")

    def close_sync(self) -> None:
        """Writes the rest, for CLOSE_SECONDS at most, and drops what is left. Idempotent."""
        with self._changed:
            if self._end is None:
                self._end = time.monotonic() + CLOSE_SECONDS
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_SECONDS)
        with self._changed:
            left = self._accepted - self._recorded - self._failed
            self._failed += left
            self._waiting.clear()
        if left:
            self._drop(left, f"they were not written {CLOSE_SECONDS:.0f} seconds after close()")

    async def close_aio(self) -> None:
        """The same beside the event loop."""
        await asyncio.to_thread(self.close_sync)

    def _has_room(self, num_bytes: int) -> bool:
        with self._changed:
            return self._end is None and self._fits(num_bytes)

    def _fits(self, num_bytes: int) -> bool:
        held = self._waiting_bytes
        return not held or held + num_bytes <= self._settings.queue_bytes

    def _runs(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="counterweight-record", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter ends
                return False
            self._thread = thread
        return True

    def _drop(self, count: int, why: str) -> None:
        with self._changed:
            self._dropped += count
            is_new = why not in self._warned
            self._warned.add(why)
        if is_new:
            _log.warning("sequences are not recorded in %s: %s", self._settings.folder, why)

    def _run(self) -> None:
        from counterweight_rl.recording.folder import Folder

        settings = self._settings
        writer = _Writer(Folder(pathlib.Path(settings.folder), settings.budget_bytes), self)
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._waiting or self._end is not None, timeout=writer.seconds_left()
                )
                is_end = self._end is not None
                taken = self._waiting.popleft() if self._waiting else None
            if taken is not None:
                writer.add(taken)
                with self._changed:
                    self._waiting_bytes -= taken.num_bytes
                if not is_end or time.monotonic() < (self._end or 0.0):
                    writer.close_old()
                    continue
            if is_end:
                writer.close_all()
                return
            writer.close_old()

    def finished(self, count: int) -> None:
        """Counts sequences of a finished file."""
        with self._changed:
            self._recorded += count
            # Those that were given up at the end, in a file that is finished all the same.
            late = max(0, self._recorded + self._failed - self._accepted)
            self._failed -= late
            self._dropped -= late

    def failed(self, count: int, error: Exception) -> None:
        """Counts sequences of a file that could not be written."""
        with self._changed:
            self._failed += count
        self._drop(count, str(getattr(error, "strerror", None) or error))


class _Writer:
    """The open files of the thread, one for each kind of rows, and what waits for a row group."""

    def __init__(self, folder: Folder, recorder: Recorder) -> None:
        self._folder = folder
        self._recorder = recorder
        self._settings = recorder._settings
        self._files: dict[tuple[str, ...], OpenFile] = {}
        self._pending: dict[tuple[str, ...], list[Rows]] = {}
        self._since: dict[tuple[str, ...], float] = {}

    def seconds_left(self) -> float | None:
        """Seconds until the oldest rows must be in a finished file; None: there are none."""
        if not self._since:
            return None
        due = min(self._since.values()) + self._settings.file_seconds
        return min(max(0.0, due - time.monotonic()), 3600.0)  # no file has to be closed: infinity

    def add(self, rows: Rows) -> None:
        """Takes rows, which go to the file when they are a row group."""
        pending = self._pending.setdefault(rows.kind, [])
        pending.append(rows)
        self._since.setdefault(rows.kind, time.monotonic())
        if sum(int(each.lengths.sum()) for each in pending) >= GROUP_POSITIONS:
            self._write(rows.kind)

    def close_old(self) -> None:
        """Finishes files that are large or old enough."""
        now = time.monotonic()
        for kind in list(self._since):
            file = self._files.get(kind)
            is_large = file is not None and file.num_bytes >= self._settings.file_bytes
            if is_large or now >= self._since[kind] + self._settings.file_seconds:
                self._close(kind)

    def close_all(self) -> None:
        """Finishes all files."""
        for kind in list(self._since):
            self._close(kind)

    def _write(self, kind: tuple[str, ...]) -> None:
        from counterweight_rl.recording.table import to_table

        rows = self._pending.pop(kind, [])
        if not rows:
            return
        count = sum(len(each.lengths) for each in rows)
        try:
            made = to_table(rows)
            if kind not in self._files:
                self._files[kind] = self._folder.open(made.schema)
            self._files[kind].write(made)
            self._folder.keep_budget(sum(file.num_bytes for file in self._files.values()))
        except Exception as error:  # the thread must live
            self._abandon(kind, count, error)

    def _close(self, kind: tuple[str, ...]) -> None:
        self._write(kind)
        self._since.pop(kind, None)
        file = self._files.get(kind)
        if file is None:
            return
        try:
            file.finish()
        except Exception as error:
            self._abandon(kind, 0, error)
            return
        del self._files[kind]
        self._recorder.finished(file.sequences)

    def _abandon(self, kind: tuple[str, ...], count: int, error: Exception) -> None:
        """Gives up a file on a disk that is full or gone; the next rows begin another one."""
        file = self._files.pop(kind, None)
        self._since.pop(kind, None)
        if file is not None:
            count += file.sequences
            file.abandon()
        self._recorder.failed(count, error)


def _begin_in_child() -> None:
    for recorder in list(_recorders):
        recorder.begin_in_child()


def _close_all() -> None:
    for recorder in list(_recorders):
        recorder.close_sync()


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
os.register_at_fork(after_in_child=_begin_in_child)
atexit.register(_close_all)
