"""Batches that ``Client.submit`` corrects in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.calls import Call
from counterweight_rl.errors import client_closed
from counterweight_rl.forks import begin_in_children
from counterweight_rl.local.connection_sync import LocalConnection
from counterweight_rl.result import Result
from counterweight_rl.transport.snapshot import snapshot

if TYPE_CHECKING:
    from counterweight_rl.transport.connection_sync import Connection


class Background:
    """Keeps at most ``max_in_flight`` batches of a connection in flight. Thread-safe."""

    def __init__(self, connection: Connection | LocalConnection, max_in_flight: int) -> None:
        self._connection = connection
        self._max_in_flight = max_in_flight
        self.begin_in_child()
        begin_in_children(self)

    def begin_in_child(self) -> None:
        """See ``forks.Begins``."""
        self._slots = threading.BoundedSemaphore(self._max_in_flight)
        self._workers = futures.ThreadPoolExecutor(self._max_in_flight, "counterweight")
        self._in_flight: set[futures.Future[Any]] = set()
        self._lock = threading.Lock()

    def submit(
        self,
        make: Callable[[], Call[Result[ArrayT]]],
        later: Callable[[], Callable[[], Result[ArrayT]] | None],
    ) -> futures.Future[Result[ArrayT]]:
        """Returns the future of a correction; it holds all errors, also those of ``make``.

        Args:
            make: Builds the call.
            later: Copies its arrays and returns what answers it; None: it has no shorter way.
        """
        self._slots.acquire()
        release: Callable[[], None] = lambda: None  # noqa: E731
        try:
            answer = later()
            if answer is not None:
                return self._started(answer, None, release)
            call = make()
            assert call.correction is not None
            pool = self._connection.pool_of(call.correction.num_bytes)
            stays = self._connection.computes_on_device
            correction, release = snapshot(call.correction, pool, on_device=stays)
            call = replace(call, correction=correction)
            return self._started(lambda: self._connection.run(call), call.request_id, release)
        except Exception as error:
            release()
            self._slots.release()
            failed: futures.Future[Result[ArrayT]] = futures.Future()
            failed.set_exception(error)
            return failed

    def _started(
        self,
        answer: Callable[[], Result[ArrayT]],
        request_id: str | None,
        release: Callable[[], None],
    ) -> futures.Future[Result[ArrayT]]:
        with self._lock:
            if self._connection.closed.is_set():
                raise client_closed(request_id)
            future = self._workers.submit(answer)
            self._in_flight.add(future)
        future.add_done_callback(lambda _: release())
        future.add_done_callback(self._finished)
        return future

    def close(self) -> None:
        """Closes the connection; all futures are done when it returns. Idempotent."""
        with self._lock:
            self._connection.closed.set()
            pending = list(self._in_flight)
        self._connection.end_calls()
        futures.wait(pending)
        self._workers.shutdown(wait=False)
        self._connection.close()

    def _finished(self, future: futures.Future[Any]) -> None:
        with self._lock:
            self._in_flight.discard(future)
        self._slots.release()
