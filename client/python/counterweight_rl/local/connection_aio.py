"""The engine at the other end of an asyncio client with a target ``local:``."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from counterweight_rl import calls
from counterweight_rl.local.connection_sync import LocalBase, LocalCalls
from counterweight_rl.local.placing import STOP

T = TypeVar("T")


async def run_in_thread(engine: LocalCalls, call: calls.Call[T], timeout: float | None) -> T:
    """The answer, computed beside the loop; cancelling the task ends the call."""
    stop = STOP()
    running = asyncio.ensure_future(asyncio.to_thread(engine.run, call, timeout, stop))
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

    async def run(self, call: calls.Call[T]) -> T:
        """Computes the answer.

        Raises:
            CounterweightError: It failed; one of its kinds.
        """
        call.report_begin()
        answer = await run_in_thread(self._calls, call, call.limit(self._timeout))
        call.report_end()
        return answer
