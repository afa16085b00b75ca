"""Reports of the optimizer steps whose losses this package weighs.

No hook sees the end of a step, but torch does: ``count_steps`` registers one function that torch
calls after the step of any optimizer of the process. The batches since the last step were trained
by it. Therefore:

* A step that a loss scaler leaves out, because a gradient is not finite, is none: its batches count
  with the next step's.
* Of several optimizers of one model (Muon and Adam, groups of DeepSpeed) the first ends the step;
  an optimizer that finds no batches, such as a critic's, ends nothing.
* A process reports nothing before its first batch with weights, so that runs without a correction
  have no reports.
* A step's number is that of earlier steps of its optimizer in this process, the same on every rank,
  unless a hook knows the trainer's own.

Nothing here raises an error into the training, or waits for a server.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from counterweight_rl import step_report
from counterweight_rl.compat import _ranks
from counterweight_rl.compat._step_books import Books
from counterweight_rl.local.engine import Publisher

_log = logging.getLogger(__name__)


class StepReports:
    """The books of one session, and their way to the server. Thread-safe."""

    def __init__(self, run: str, publisher: Publisher) -> None:
        """Starts no thread yet.

        Args:
            run: The run of the reports.
            publisher: Sends them; ``close`` closes it.
        """
        self._run = run
        self._publisher = publisher
        self._failed = 0
        self._has_warned = False
        self._begin()

    def _begin(self) -> None:
        # A forked child has other batches, and its parent's lock may be held.
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._books = Books()
        self._is_open = False
        self._is_spoiled = False
        self._number: int | None = None
        self._ended = 0

    @property
    def dropped(self) -> int:
        """Reports of this process that the server did not get."""
        return self._failed + self._publisher.dropped

    def enter(self, act: Callable[[Books], None]) -> None:
        """Calls ``act`` with the step's books; a step for which it fails is not reported."""
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            try:
                act(self._books)
            except Exception as error:
                self._is_spoiled = True
                self._warn(error)

    def set_number(self, number: int) -> None:
        """Sets the number of the step that ends next."""
        if number >= 0:
            self._number = number

    def end_step(self, number: int | None = None) -> None:
        """Reports the batches since the last step, if there are any.

        Args:
            number: The step's, unless ``set_number`` was called. None: of the steps that ended so.
        """
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            books, self._books = self._books, Books()
            is_spoiled, self._is_spoiled = self._is_spoiled, False
            if not (books.num_batches or is_spoiled):
                return
            if number is None:
                number, self._ended = self._ended, self._ended + 1
            if self._number is not None:
                number, self._number = self._number, None
            self._is_open = self._is_open or books.corrects
            if is_spoiled:
                self._failed += 1
            elif self._is_open:
                self._report(books, number)

    def _report(self, books: Books, number: int) -> None:
        try:
            num_reports = _ranks.reports_of_a_step()
            if num_reports == 0:
                return
            call = step_report.report_step(
                run=self._run,
                step=number,
                tokens=books.tokens,
                issued=books.issued,
                applied=books.applied,
                skipped_batches=books.skipped,
                # Several servers never see all parts of a step, and each rank's part is whole.
                num_reports=1 if self._publisher.takes_turns else num_reports,
            )
            self._publisher.report(call.message, "ReportStep")
        except Exception as error:
            self._failed += 1
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        kind = type(error).__name__
        _log.warning("a step of run %s is not reported: %s: %s", self._run, kind, error)

    def close(self) -> None:
        """Sends what waits, for two seconds at most. Idempotent."""
        self._publisher.close()


def attach(reports: StepReports | None) -> None:
    """Ends the steps of ``reports`` with those of the process's optimizers; None: of nothing."""
    global _reports
    _reports = reports


def count_steps() -> None:
    """Counts the steps of the process's optimizers from now on. Idempotent."""
    global _watching
    if _watching is None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        _watching = register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: Any, *_: Any) -> None:
    # Counted also before the first report, so that the ranks agree.
    number = _steps[optimizer] = _steps.get(optimizer, -1) + 1
    if _reports is not None:
        _reports.end_step(number)


_watching: Any = None
_reports: StepReports | None = None
_steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
