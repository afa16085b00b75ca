"""The engine at the other end of an asyncio client with a target ``local:``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from counterweight_rl import calls
from counterweight_rl.local.connection_sync import LocalBase
from counterweight_rl.local.placing import STOP
from counterweight_rl.local.plain_calls import Known
from counterweight_rl.result import Result

T = TypeVar("T")


async def run_in_thread(run: Callable[[STOP], T]) -> T:
    """The answer, computed beside the loop; cancelling the task ends the call."""
    stop = STOP()
    running = asyncio.ensure_future(asyncio.to_thread(run, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.value = 1
        # The arrays are the caller's again when nothing reads and writes them any more.
        await asyncio.wait([running])
        running.exception()  # or asyncio reports that it was not looked at
        raise


class LocalConnection(LocalBase):
    """Replaces ``transport.connection_aio.Connection``, without a server."""

    async def close(self) -> None:
        """Calls fail with code CANCELLED, those under way and later ones. Idempotent."""
        self._calls.end_calls()
        if self._publisher is not None:
            await asyncio.to_thread(self._publisher.close)

    async def pool_for_arrays(self) -> None:
        """No shared memory: any array will do."""

    async def correct(self, call: Mapping[str, Any]) -> Result[Any]:
        """Computes the answer to a call of ``correct``.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        known = self._calls.known(call)
        on_stream: AbstractContextManager[None] = nullcontext()
        if known is not None and self._calls.has(known):
            result = await run_in_thread(lambda stop: self._by_plan(known, call, stop))
            if result is not None:
                return result
            # Other tasks may have left another stream behind.
            on_stream = known.on_stream()
        with on_stream:
            whole: calls.Call[Result[Any]] = calls.correct(**call)
        answer = await self.run(whole)
        self._calls.learn(known, call, whole, self._timeout)
        return answer

    def _by_plan(self, known: Known, call: Mapping[str, Any], stop: STOP) -> Result[Any] | None:
        # The current stream is one of each thread.
        with known.on_stream():
            return self._calls.correct(known, call, stop)

    async def run(self, call: calls.Call[T]) -> T:
        """Computes the answer.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        call.report_begin()
        limit = call.limit(self._timeout)
        answer = await run_in_thread(lambda stop: self._calls.run(call, limit, stop))
        call.report_end()
        return answer
