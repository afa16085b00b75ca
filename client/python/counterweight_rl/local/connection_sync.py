"""The engine at the other end of a blocking client with a target ``local:``."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from counterweight_rl import calls
from counterweight_rl.errors import CounterweightError, client_closed
from counterweight_rl.local.engine import Engine, Publisher
from counterweight_rl.local.placing import STOP
from counterweight_rl.local.plain_calls import Key, copy_arrays
from counterweight_rl.local.target import LocalTarget
from counterweight_rl.one_process import refuse_at_exit
from counterweight_rl.result import Result

T = TypeVar("T")


class LocalCalls:
    """An engine and the calls that are under way in it. Thread-safe.

    Attributes:
        closed: Set once, when calls are to end and no others may begin.
    """

    def __init__(self, target: LocalTarget, publisher: Publisher | None = None) -> None:
        """Opens the engine; starts no thread."""
        self.closed = threading.Event()
        self._engine = Engine(target, publisher)
        self._lock = threading.Lock()
        self._stops: dict[int, STOP] = {}
        self._ended = False

    def end_calls(self) -> None:
        """Calls fail with code CANCELLED, those under way and later ones. Idempotent."""
        self.closed.set()
        with self._lock:
            for stop in self._stops.values():
                stop.value = 1
            self._end_if_idle()

    def key(self, call: Mapping[str, Any]) -> Key | None:
        """The key of a call of ``correct``, if calls of its kind can be prepared."""
        refuse_at_exit()
        prepared = self._engine.prepared
        return None if prepared is None or self.closed.is_set() else prepared.key(call)

    def has(self, key: Key | None) -> bool:
        """Whether calls of this key are prepared."""
        prepared = self._engine.prepared
        return prepared is not None and prepared.has(key)

    def correct(self, key: Key | None, call: Mapping[str, Any], stop: STOP) -> Result[Any] | None:
        """The answer to a call of ``correct`` by a plan; None: it has to go the whole way.

        ``stop`` ends the call, as ``end_calls`` does.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        prepared = self._engine.prepared
        if key is None or prepared is None or not prepared.has(key):
            return None
        # _under_way without the microseconds of a generator.
        self._begin(call.get("request_id"), stop)
        try:
            return prepared.run(key, call, ctypes.addressof(stop))
        finally:
            self._end(stop)

    def learn(
        self,
        key: Key | None,
        call: Mapping[str, Any],
        answered: calls.Call[Any],
        timeout: float | None,
    ) -> None:
        """Prepares calls of the kind of one that went the whole way, for a client's timeout."""
        prepared, correction = self._engine.prepared, answered.correction
        if key is None or prepared is None or correction is None:
            return
        # A client that was closed meanwhile has its answer all the same.
        with suppress(CounterweightError), self._under_way(answered.request_id, STOP()):
            prepared.learn(key, call, correction, answered.limit(timeout))

    def run(self, call: calls.Call[T], timeout: float | None, stop: STOP) -> T:
        """The answer; ``stop`` ends the call, as ``end_calls`` does.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        with self._under_way(call.request_id, stop):
            return self._engine.run(call, timeout, stop)

    @contextmanager
    def _under_way(self, request_id: str | None, stop: STOP) -> Iterator[None]:
        self._begin(request_id, stop)
        try:
            yield
        finally:
            self._end(stop)

    def _begin(self, request_id: str | None, stop: STOP) -> None:
        with self._lock:
            if self.closed.is_set():
                raise client_closed(request_id)
            self._stops[id(stop)] = stop

    def _end(self, stop: STOP) -> None:
        with self._lock:
            del self._stops[id(stop)]
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        """The last call to leave a closed engine ends it."""
        if self.closed.is_set() and not self._stops and not self._ended:
            self._ended = True
            self._engine.close()


class LocalBase:
    """The part of a connection without a server that waits for nothing."""

    def __init__(
        self, target: LocalTarget, timeout: float | None, publisher: Publisher | None
    ) -> None:
        """Opens the engine; starts no thread."""
        self._timeout = timeout
        self._publisher = publisher
        self.computes_on_device = target.backend == "cuda"
        self._calls = LocalCalls(target, publisher)

    def compare_versions(self, server: str) -> None:
        """Does nothing: the binary interface of the library is compared when it is loaded."""

    @property
    def publish_dropped(self) -> int:
        """Batches with dropped sums."""
        return 0 if self._publisher is None else self._publisher.dropped

    @property
    def fallbacks(self) -> dict[str, int]:
        """None: there is no server to be away."""
        return {}


class LocalConnection(LocalBase):
    """Replaces ``transport.connection_sync.Connection``, without a server."""

    @property
    def closed(self) -> threading.Event:
        """Set once, when calls are to end and no others may begin."""
        return self._calls.closed

    def end_calls(self) -> None:
        """Calls fail with code CANCELLED, those under way and later ones. Idempotent."""
        self._calls.end_calls()

    def close(self) -> None:
        """Publishes the rest. Idempotent."""
        if self._publisher is not None:
            self._publisher.close()

    def pool_of(self, num_bytes: int) -> None:
        """No shared memory: nothing is sent."""

    def pool_for_arrays(self) -> None:
        """No shared memory: any array will do."""

    def correct(self, call: Mapping[str, Any]) -> Result[Any]:
        """Computes the answer to a call of ``correct``.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        key = self._calls.key(call)
        result = self._calls.correct(key, call, STOP())
        if result is not None:
            return result
        whole: calls.Call[Result[Any]] = calls.correct(**call)
        result = self.run(whole)
        self._calls.learn(key, call, whole, self._timeout)
        return result

    def later(self, call: Mapping[str, Any]) -> Callable[[], Result[Any]] | None:
        """Copies the arrays of a call of ``correct``; returns what answers it.

        None: it has no plan, or the caller's arrays need a judgement.
        """
        key = self._calls.key(call)
        copied = copy_arrays(call) if self._calls.has(key) else None
        if copied is None:
            return None
        return lambda: self.correct(copied)

    def run(self, call: calls.Call[T]) -> T:
        """Computes the answer.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        call.report_begin()
        answer = self._calls.run(call, call.limit(self._timeout), STOP())
        call.report_end()
        return answer
