"""When a call that was not admitted is tried again."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import grpc

from counterweight.errors import CounterweightError, OverloadedError, UnavailableError

_FIRST_PAUSE_SECONDS = 0.1  # where the server names none: nobody listens, the connection broke
_LONGEST_PAUSE_SECONDS = 5.0  # unless the server names a longer one
_JITTER = 0.25  # of the pause, on top, so that refused clients do not come back all at once


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long a refused call is tried again.

    Tried again is what the server did not admit: RESOURCE_EXHAUSTED with a delay, and UNAVAILABLE.
    A stream is told that it is admitted, and is not tried again from then on.
    The pause is what the server asks for, or 0.1 s; it doubles with every attempt up to 5 s and has
    up to a quarter of itself on top, at random. A pause that would end after the timeout or
    ``max_seconds`` is not begun: the error is raised at once.

    Attributes:
        attempts: Attempts in all, the first included; >= 1.
        max_seconds: No attempt begins later than this many seconds after the first; >= 0. None:
            only the call's timeout bounds.
        seed: Seed of the random part, for tests. None: one of the operating system.

    Raises:
        ValueError: A number out of its range.
    """

    attempts: int = 5
    max_seconds: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1; got {self.attempts}")
        if self.max_seconds is not None and not self.max_seconds >= 0:
            raise ValueError(f"max_seconds must be at least 0; got {self.max_seconds}")


DEFAULT = RetryPolicy()


class Retry:
    """A policy with the random numbers of one client. Thread-safe."""

    def __init__(self, policy: RetryPolicy | Literal[False]) -> None:
        """Takes what ``Client(retry=...)`` takes: a policy, or False for a single attempt."""
        if policy is False:
            policy = RetryPolicy(attempts=1)
        if not isinstance(policy, RetryPolicy):
            raise TypeError(f"retry must be a RetryPolicy or False, not {policy!r}")
        self.policy = policy
        self.random = random.Random(policy.seed)

    def begin(self, timeout: float | None, clock: Callable[[], float] = time.monotonic) -> Attempts:
        """The attempts of one call, which may take ``timeout`` seconds in all; None: any."""
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

    def remaining(self) -> float | None:
        """Seconds that the next attempt may take; None: any."""
        return None if self._timeout is None else self._timeout - self._elapsed()

    def admitted(self) -> None:
        """The server has begun: whatever happens now, there is no next attempt."""
        self._admitted = True

    def pause(self, error: CounterweightError) -> float | None:
        """Seconds to wait before the next attempt; None: there is none, raise ``error``."""
        self._failed += 1
        policy = self._retry.policy
        asked = _pause_asked_for(error)
        if asked is None or self._admitted or self._failed >= policy.attempts:
            return None
        grown = min(asked * 2 ** (self._failed - 1), _LONGEST_PAUSE_SECONDS)
        pause = max(asked, grown) * (1 + _JITTER * self._retry.random.random())
        bounds = (self._timeout, policy.max_seconds)
        end = min((bound for bound in bounds if bound is not None), default=math.inf)
        return None if self._elapsed() + pause >= end else pause

    def _elapsed(self) -> float:
        return self._clock() - self._begin


def _pause_asked_for(error: CounterweightError) -> float | None:
    """None: trying again would not help, or the server may have admitted the call."""
    if isinstance(error, OverloadedError):
        return error.retry_after  # a request beyond a limit has none
    if isinstance(error, UnavailableError) and error.code is grpc.StatusCode.UNAVAILABLE:
        return _FIRST_PAUSE_SECONDS if error.retry_after is None else error.retry_after
    return None
