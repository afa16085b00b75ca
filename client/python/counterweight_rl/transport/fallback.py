"""Answers are given here while the server is away: ``Client(on_unavailable=...)``."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, get_args

from counterweight_rl import calls
from counterweight_rl.errors import CounterweightError, UnavailableError
from counterweight_rl.local.connection_sync import LocalCalls
from counterweight_rl.local.placing import STOP
from counterweight_rl.local.target import LocalTarget
from counterweight_rl.result import Result
from counterweight_rl.suggestions import did_you_mean
from counterweight_rl.transport.identity import identity

OnUnavailable = Literal["raise", "local", "identity"]

_log = logging.getLogger(__name__)


class Fallback:
    """One client's second answer, and how often it was needed. Thread-safe."""

    def __init__(self, choice: OnUnavailable) -> None:
        """Takes what ``Client`` takes; opens the library if it may be needed.

        Raises:
            ValueError: There is no such choice.
            CounterweightError: There is no library.
        """
        if choice not in get_args(OnUnavailable):
            choices = get_args(OnUnavailable)
            advice = did_you_mean(choice, choices)
            raise ValueError(
                f"on_unavailable must be one of {', '.join(choices)}; got {choice!r}{advice}"
            )
        self.choice = choice
        self.engine = LocalCalls(LocalTarget()) if choice == "local" else None
        self._counts = {} if choice == "raise" else {str(choice): 0}
        self._lock = threading.Lock()
        self._is_away = False
        self._numerics_version: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Answers by the choice that gave them."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Ends what runs here. Idempotent."""
        if self.engine is not None:
            self.engine.end_calls()

    def waits(self, failure: CounterweightError) -> bool:
        """Whether trying again is worth a pause: not while the server is known to be away."""
        with self._lock:
            return not (self._is_away and isinstance(failure, UnavailableError))

    def answered(self, call: calls.Call[Any], answer: Any) -> None:
        """The server has answered a call; what it now knows of a run, the engine learns too."""
        if self.choice == "raise":
            return
        if self.engine is not None and call.rpc == "DeclareRun":
            with suppress(CounterweightError):  # a method of the server's release
                self.engine.run(call, None, STOP())
        with self._lock:
            was_away, self._is_away = self._is_away, False
            if isinstance(answer, Result):
                self._numerics_version = answer.numerics_version
        if was_away:
            _log.warning("the server is back")

    def takes(self, call: calls.Call[Any], failure: CounterweightError) -> bool:
        """Whether the call is answered here after that failure."""
        if self.choice == "raise" or call.correction is None:
            return False
        if not isinstance(failure, UnavailableError):
            return False
        with self._lock:
            was_away, self._is_away = self._is_away, True
        if not was_away:
            _log.warning('the server is away, on_unavailable="%s": %s', self.choice, failure)
        return True

    def compute(self, call: calls.Call[Any], timeout: float | None, stop: STOP) -> Any:
        """The answer to a call that the local engine takes."""
        assert self.engine is not None
        return self.engine.run(call, timeout, stop)

    def identity(self, call: calls.Call[Any], failure: CounterweightError) -> Any:
        """The answer that corrects nothing.

        Raises:
            CounterweightError: ``failure``: it was to have a loss, which is never the same.
        """
        assert call.correction is not None
        result = identity(call.correction)
        if result is None:
            raise failure
        return self._counted(result)

    def computed(self, result: Result[Any], failure: CounterweightError) -> Any:
        """The local engine's answer, marked.

        Raises:
            CounterweightError: ``failure``: the server's numbers are others than the library's.
        """
        with self._lock:
            theirs = self._numerics_version
        if theirs not in (None, result.numerics_version):
            raise UnavailableError(
                f"{failure}; libcounterweight is no substitute, because its numerics_version is "
                f"{result.numerics_version} and the server's {theirs}",
                request_id=failure.request_id,
            )
        return self._counted(replace(result, backend=f"local:{result.backend}"))

    def _counted(self, result: Result[Any]) -> Result[Any]:
        with self._lock:
            self._counts[str(self.choice)] += 1
        return result
