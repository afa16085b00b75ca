"""Retries of calls that the server did not admit."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from counterweight_rl.errors import CounterweightError, OverloadedError, UnavailableError
from counterweight_rl.settings import read_count, read_seconds
from counterweight_rl.status import StatusCode

_FIRST_PAUSE_SECONDS = 0.1  # if the server names none
_MOST_DOUBLINGS = 64  # more doublings than any pause needs; 2**1024 is no float
_JITTER = 0.25  # share of the pause, added at random so that refused clients spread out


@dataclass(frozen=True)
class RetryPolicy:
    """Number and duration of retries.

    The client retries calls that the server did not admit: RESOURCE_EXHAUSTED with a delay,
    UNAVAILABLE, and once a CANCELLED of the server's, with which it ends calls that arrive while it
    shuts down. A stream reports its admission and is not retried afterwards, unless
    ``interrupted`` is set. The pause is the server's delay or 0.1 s; it doubles with every attempt
    up to ``max_pause``, and up to a quarter of it is added at random. A pause that would end after
    the timeout or ``max_seconds`` is not begun: the error is raised at once.

    Attributes:
        attempts: Number of attempts, including the first; >= 1. None: unlimited.
        max_seconds: No attempt begins later than this many seconds after the first; >= 0. None:
            only the call's timeout limits them.
        seed: Seed of the random part, for tests. None: one of the operating system.
        max_pause: Longest pause in seconds; > 0. A longer delay of the server is kept.
        interrupted: Whether to retry calls that ended because the server went away after it had
            admitted them: in an admitted stream, and more than once after CANCELLED. A correction
            has no effect but its metrics, so this is safe; a batch that crashes the server would
            crash it again.

    Raises:
        TypeError: A value of another type than its field's.
        ValueError: A number out of its range.
    """

    attempts: int | None = 5
    max_seconds: float | None = None
    seed: int | None = None
    max_pause: float = 5.0
    interrupted: bool = False

    def __post_init__(self) -> None:
        if self.attempts is not None:
            read_count("attempts", self.attempts, 1)
        if self.max_seconds is not None:
            read_seconds("max_seconds", self.max_seconds, or_zero=True)
        read_seconds("max_pause", self.max_pause)
        if not isinstance(self.interrupted, bool):
            raise TypeError(f"interrupted must be a bool, not {type(self.interrupted).__name__}")


DEFAULT = RetryPolicy()


class Retry:
    """A policy with one client's random generator. Thread-safe."""

    def __init__(self, policy: RetryPolicy | Literal[False]) -> None:
        """Takes the argument ``retry`` of ``Client``: a policy, or False for a single attempt."""
        if policy is False:
            policy = RetryPolicy(attempts=1)
        if not isinstance(policy, RetryPolicy):
            raise TypeError(f"retry must be a RetryPolicy or False, not {policy!r}")
        self.policy = policy
        self.random = random.Random(policy.seed)

    def begin(self, timeout: float | None, clock: Callable[[], float] = time.monotonic) -> Attempts:
        """Begins a call with a deadline of ``timeout`` seconds; None: no deadline."""
        return Attempts(self, timeout, clock)


class Attempts:
    """The attempts of one call."""

    def __init__(self, retry: Retry, timeout: float | None, clock: Callable[[], float]) -> None:
        self._retry = retry
        self._timeout = timeout
        self._clock = clock
        self._begin = clock()
        self._failed = 0
        self._admitted = False
        self._was_cancelled = False

    def remaining(self) -> float | None:
        """Returns the seconds until the deadline; None: no deadline."""
        return None if self._timeout is None else self._timeout - self._elapsed()

    def admitted(self) -> None:
        """Notes the server's admission, after which there are no retries."""
        self._admitted = True

    def pause(self, error: CounterweightError) -> float | None:
        """Returns the pause before the next attempt in seconds; None: raise ``error``."""
        self._failed += 1
        policy = self._retry.policy
        asked = _pause_asked_for(error)
        if asked is None or (self._admitted and not policy.interrupted):
            return None
        if error.code is StatusCode.CANCELLED and not policy.interrupted:
            if self._was_cancelled:
                return None
            self._was_cancelled = True
        if policy.attempts is not None and self._failed >= policy.attempts:
            return None
        pause = max(asked, self._grown(asked)) * (1 + _JITTER * self._retry.random.random())
        bounds = (self._timeout, policy.max_seconds)
        end = min((bound for bound in bounds if bound is not None), default=math.inf)
        # A server's delay may be longer than a thread can wait.
        return None if self._elapsed() + pause >= end else min(pause, threading.TIMEOUT_MAX)

    def _grown(self, pause: float) -> float:
        """Returns the pause doubled once for each earlier failure, at most ``max_pause``."""
        doublings = min(self._failed - 1, _MOST_DOUBLINGS)
        return min(math.ldexp(pause, doublings), self._retry.policy.max_pause)

    def _elapsed(self) -> float:
        return self._clock() - self._begin


def _pause_asked_for(error: CounterweightError) -> float | None:
    """Returns None if a retry would not help."""
    if isinstance(error, OverloadedError):
        return error.retry_after  # a request beyond a limit has none
    if isinstance(error, UnavailableError):
        return _FIRST_PAUSE_SECONDS if error.retry_after is None else error.retry_after
    return None
