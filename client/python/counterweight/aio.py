"""The client for asyncio.

    async with counterweight.aio.Client("localhost:50051") as client:
        results = await asyncio.gather(*(client.correct(**batch) for batch in batches))

The same calls, arguments, results and errors as ``counterweight.Client``. Cancelling the task that
awaits a call cancels it on the server too. Arrays are encoded and decoded in the event loop (8 Mi
tokens take it tens of milliseconds); only the waiting is asynchronous.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Literal, TypeVar

import grpc
import grpc.aio

from counterweight import calls
from counterweight.channel import SERVICE, TlsConfig, connect
from counterweight.errors import client_closed, from_rpc_error
from counterweight.retry import DEFAULT, Retry, RetryPolicy
from counterweight.signatures import answers_awaited

__all__ = ["Client"]

T = TypeVar("T")


class Client:
    """A connection to one Counterweight server, for the tasks of one event loop.

    It belongs to the loop of its first call and may be made before there is one. Nothing is sent
    before the first call. Not to be used across fork().
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float | None = 60.0,
        tls: TlsConfig | grpc.ChannelCredentials | None = None,
        retry: RetryPolicy | Literal[False] = DEFAULT,
    ) -> None:
        """Prepares a connection; the arguments are those of ``counterweight.Client``."""
        self._target = target
        self._tls = tls
        self._timeout = timeout
        self._retry = Retry(retry)
        self._channel: Any = None
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; calls in flight and later ones fail with code CANCELLED."""
        self._closed.set()
        if self._channel is not None:
            await self._channel.close()

    @answers_awaited(calls.correct)
    async def correct(self, **arguments: Any) -> Any:
        """Asks for one batch and awaits the answer."""
        return await self._run(calls.correct(**arguments))

    @answers_awaited(calls.list_methods)
    async def list_methods(self, **arguments: Any) -> Any:
        """Asks for the methods table."""
        return await self._run(calls.list_methods(**arguments))

    @answers_awaited(calls.server_info)
    async def server_info(self, **arguments: Any) -> Any:
        """Asks the server about itself."""
        return await self._run(calls.server_info(**arguments))

    async def _run(self, call: calls.Call[T]) -> T:
        attempts = self._retry.begin(self._timeout if call.timeout is None else call.timeout)
        while not self._closed.is_set():
            if self._channel is None:  # a channel belongs to the loop that it is made in
                self._channel = connect(grpc.aio, self._target, self._tls)
            rpc = self._channel.unary_unary(SERVICE + call.rpc)
            try:
                return call.read(await rpc(call.request, timeout=attempts.remaining()))
            except grpc.RpcError as error:
                failure = from_rpc_error(error, call.request_id, closed=self._closed.is_set())
                pause = attempts.pause(failure)
                if pause is None or await self._closes_within(pause):
                    raise failure from error
            except asyncio.CancelledError:
                # grpc says so of calls that close() ended, as asyncio does of this task's end.
                if not self._closed.is_set() or _this_task_is_cancelled():
                    raise
        raise client_closed(call.request_id)

    async def _closes_within(self, seconds: float) -> bool:
        try:
            return await asyncio.wait_for(self._closed.wait(), seconds)
        except asyncio.TimeoutError:  # the builtin one since Python 3.11
            return False


def _this_task_is_cancelled() -> bool:
    """False before Python 3.11, which does not tell."""
    return bool(getattr(asyncio.current_task(), "cancelling", int)())
