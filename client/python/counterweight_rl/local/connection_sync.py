"""The engine at the other end of a blocking client with a target ``local:``."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from counterweight_rl import calls
from counterweight_rl.errors import CounterweightError, client_closed
from counterweight_rl.forks import begin_in_children
from counterweight_rl.local.engine import Engine, Publisher
from counterweight_rl.local.placing import STOP
from counterweight_rl.local.plain_calls import Known, copy_arrays
from counterweight_rl.local.plan import Pieces, Plan
from counterweight_rl.local.target import LocalTarget
from counterweight_rl.one_process import refuse_at_exit
from counterweight_rl.result import Result
from counterweight_rl.step_report import REPORTS

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
        self._ended = False
        self.begin_in_child()
        begin_in_children(self)

    def begin_in_child(self) -> None:
        """See ``forks.Begins``."""
        self._lock = threading.Lock()
        self._stops: dict[int, STOP] = {}

    def end_calls(self) -> None:
        """Calls fail with code CANCELLED, those under way and later ones. Idempotent."""
        self.closed.set()
        with self._lock:
            for stop in self._stops.values():
                stop.value = 1
            self._end_if_idle()

    def known(self, call: Mapping[str, Any]) -> Known | None:
        """Reads what a call of ``correct`` has in common with others; None: it cannot be prepared.

        To be called in the caller's thread.
        """
        refuse_at_exit()
        prepared = self._engine.prepared
        return None if prepared is None or self.closed.is_set() else prepared.known(call)

    def has(self, known: Known) -> bool:
        """Whether such calls are prepared."""
        prepared = self._engine.prepared
        return prepared is not None and prepared.has(known)

    def correct(
        self, known: Known | None, call: Mapping[str, Any], stop: STOP
    ) -> Result[Any] | None:
        """The answer to a call of ``correct`` by a plan; None: it has to go the whole way.

        ``stop`` ends the call, as ``end_calls`` does.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        prepared = self._engine.prepared
        if known is None or prepared is None or not prepared.has(known):
            return None
        # _under_way without the microseconds of a generator.
        self._begin(call.get("request_id"), stop)
        try:
            return prepared.run(known, call, ctypes.addressof(stop))
        finally:
            self._end(stop)

    def learn(
        self,
        known: Known | None,
        call: Mapping[str, Any],
        answered: calls.Call[Any],
        timeout: float | None,
    ) -> None:
        """Prepares calls of the kind of one that went the whole way, for a client's timeout."""
        prepared, correction = self._engine.prepared, answered.correction
        if known is None or prepared is None or correction is None:
            return
        # A client that was closed meanwhile has its answer all the same.
        with suppress(CounterweightError), self._under_way(answered.request_id, STOP()):
            prepared.learn(known, call, correction, answered.limit(timeout))

    def run(self, call: calls.Call[T], timeout: float | None, stop: STOP) -> T:
        """The answer; ``stop`` ends the call, as ``end_calls`` does.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        with self._under_way(call.request_id, stop):
            return self._engine.run(call, timeout, stop)

    def sum_parts(
        self, plan: Plan | None, call: Mapping[str, Any], batch: Pieces, timeout: float | None
    ) -> tuple[Plan, tuple[Any, Any] | None]:
        """``Engine.sum_parts``, and the plan, which is made of the call if there is none."""
        stop = STOP()
        with self._under_way(None, stop):
            if plan is None:
                whole: calls.Call[Result[Any]] = calls.correct(**call)
                assert whole.correction is not None
                plan = self._engine.plan(whole.correction, whole.limit(timeout))
            return plan, self._engine.sum_parts(plan, batch, stop)

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
            self._stops.pop(id(stop), None)  # a fork forgets them
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
        self._part_plans: dict[Hashable, Plan] = {}

    def compare_versions(self, server: str) -> None:
        """Does nothing: the binary interface of the library is compared when it is loaded."""

    @property
    def publishes(self) -> bool:
        """Whether sums go to a server."""
        return self._publisher is not None

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

    def open_reporter(self) -> Publisher | None:
        """Returns what sends reports of steps, for the caller to close; None without a server."""
        return None if self._publisher is None else self._publisher.another(REPORTS)

    def pool_of(self, num_bytes: int) -> None:
        """No shared memory: nothing is sent."""

    def pool_for_arrays(self) -> None:
        """No shared memory: any array will do."""

    def correct(self, call: Mapping[str, Any]) -> Result[Any]:
        """Computes the answer to a call of ``correct``.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        known = self._calls.known(call)
        result = self._calls.correct(known, call, STOP())
        if result is not None:
            return result
        whole: calls.Call[Result[Any]] = calls.correct(**call)
        result = self.run(whole)
        self._calls.learn(known, call, whole, self._timeout)
        return result

    def sum_parts(
        self, kind: Hashable, call: Mapping[str, Any], batch: Pieces
    ) -> tuple[Any, Any] | None:
        """Sums the parts of a batch; see ``Engine.sum_parts``.

        Args:
            kind: What calls have in common that differ in arrays alone.
            call: The arguments of ``correct``; read for the first batch of a kind.
            batch: The batch.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        plan = self._part_plans.get(kind)
        self._part_plans[kind], found = self._calls.sum_parts(plan, call, batch, self._timeout)
        return found

    def later(self, call: Mapping[str, Any]) -> Callable[[], Result[Any]] | None:
        """Copies the arrays of a call of ``correct``; returns what answers it.

        None: it has no plan, or the caller's arrays need a judgement.
        """
        known = self._calls.known(call)
        if known is None or not self._calls.has(known):
            return None
        copied = copy_arrays(call, known.arrays)
        if copied is None:
            return None
        if known.stream is not None:
            # Only then may other streams write into the caller's tensors.
            known.stream.synchronize()

        def answer() -> Result[Any]:
            with known.on_stream():
                return self.correct(copied)

        return answer

    def run(self, call: calls.Call[T]) -> T:
        """Computes the answer.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        call.report_begin()
        answer = self._calls.run(call, call.limit(self._timeout), STOP())
        call.report_end()
        return answer
