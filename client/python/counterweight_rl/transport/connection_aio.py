"""The connection of an asyncio client: ``connection_sync`` with await."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

import grpc
import grpc.aio

from counterweight_rl import calls
from counterweight_rl.correction import Correction
from counterweight_rl.errors import (
    CounterweightError,
    DeadlineError,
    UnavailableError,
    client_closed,
    from_rpc_error,
)
from counterweight_rl.local.connection_aio import run_in_thread
from counterweight_rl.result import Result
from counterweight_rl.shared_memory.exchange import Exchange
from counterweight_rl.shared_memory.pool import Pool
from counterweight_rl.shared_memory.registry import UnusableError
from counterweight_rl.status import StatusCode
from counterweight_rl.transport import unary
from counterweight_rl.transport.access import Access
from counterweight_rl.transport.channel import SERVICE
from counterweight_rl.transport.fallback import Fallback, OnUnavailable
from counterweight_rl.transport.heap import LARGE_BYTES, keep_freed_memory
from counterweight_rl.transport.prepared_calls import PreparedCalls
from counterweight_rl.transport.prepared_exchange import open_exchange
from counterweight_rl.transport.retry import Attempts, Retry, RetryPolicy
from counterweight_rl.transport.router import Capabilities, Router, Transport
from counterweight_rl.transport.stream_aio import correct_by_stream
from counterweight_rl.transport.target import Target
from counterweight_rl.transport.write_watchdog import Peer

T = TypeVar("T")


class Connection:
    """One client's channel and its server's capabilities, for the tasks of one event loop."""

    def __init__(
        self,
        target: Target,
        timeout: float | None,
        access: Access,
        retry: RetryPolicy | Literal[False],
        transport: Transport,
        chunk_bytes: int,
        on_unavailable: OnUnavailable,
    ) -> None:
        """Takes the arguments of ``Client``; sends nothing yet."""
        self._access = access
        self._timeout = timeout
        self._retry = Retry(retry)
        self._fallback = Fallback(on_unavailable)
        self._router = Router(target, transport, chunk_bytes)
        self._closed = asyncio.Event()
        self._peer = Peer(target)
        self._prepared = PreparedCalls()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def close(self) -> None:
        """Ends calls in flight and later ones with code CANCELLED. Idempotent."""
        self._closed.set()
        self._fallback.close()
        self._peer.closes()
        self._router.stop()
        channels = self._access.close()
        # In another loop they cannot be closed; grpc ends them with their last reference.
        if self._loop is asyncio.get_running_loop():
            for channel in channels:
                await channel.close()
        self._router.close()

    def compare_versions(self, server: str) -> None:
        """Warns once of a server of another version."""
        self._router.compare_versions(server)

    async def pool_for_arrays(self) -> Pool | None:
        """Returns the pool for arrays of the caller; None without shared memory."""
        if not self._router.may_share() or self._closed.is_set():
            return None
        if self._router.capabilities is None:
            with (
                contextlib.suppress(grpc.RpcError, CounterweightError),
                self._peer.bounds(self._timeout),
            ):
                await self._ask(self._timeout)
        return self._router.pool_for_arrays()

    @property
    def publishes(self) -> bool:
        """False: the server itself shows what it corrects."""
        return False

    @property
    def publish_dropped(self) -> int:
        """None: a server publishes what it corrects."""
        return 0

    @property
    def fallbacks(self) -> dict[str, int]:
        """Answers that were given instead of the server's, by ``on_unavailable``."""
        return self._fallback.counts

    async def correct(self, call: Mapping[str, Any]) -> Result[Any]:
        """Runs a call of ``correct``."""
        key = self._prepared.key(call)
        prepared = self._prepared.call(key, call)
        if prepared is not None:
            return await self.run(prepared)
        whole: calls.Call[Result[Any]] = calls.correct(**call)
        answer = await self.run(whole)
        self._prepared.learn(key, call, whole)
        return answer

    async def run(self, call: calls.Call[T]) -> T:
        """Sends a call, retries it by the policy, and awaits the answer.

        Raises:
            CounterweightError: The call failed; its type has the kind.
        """
        attempts = self._retry.begin(call.limit(self._timeout))
        while not self._closed.is_set():
            try:
                with self._peer.bounds(attempts.remaining()):
                    answer = await self._attempt(call, attempts)
                self._fallback.answered(call, answer)
                return answer
            except grpc.RpcError as error:
                failure = call.failure(error, closed=self._closed.is_set())
            except UnavailableError as error:
                failure = error
            except asyncio.CancelledError:
                # grpc raises it for calls that close() ended, and asyncio for this task's
                # cancellation.
                if not self._closed.is_set() or _this_task_is_cancelled():
                    raise
                break
            # Outside of the handler, so that grpc's traceback does not precede the caller's.
            if self._router.falls_back(failure):
                continue
            pause = attempts.pause(failure) if self._fallback.waits(failure) else None
            if pause is None:
                if not self._closed.is_set() and self._fallback.takes(call, failure):
                    return await self._fall_back(call, failure, attempts.remaining())
                raise failure
            if await self._closes_within(pause):
                break
        raise client_closed(call.request_id)

    async def _fall_back(
        self, call: calls.Call[T], failure: CounterweightError, timeout: float | None
    ) -> T:
        answer: Any
        if self._fallback.choice == "identity":
            answer = self._fallback.identity(call, failure)
        else:
            assert self._fallback.engine is not None
            engine = self._fallback.engine
            result: Any = await run_in_thread(lambda stop: engine.run(call, timeout, stop))
            answer = self._fallback.computed(result, failure)
        call.report_end()
        return answer  # type: ignore[no-any-return]

    async def _attempt(self, call: calls.Call[T], attempts: Attempts) -> T:
        correction = call.correction
        if correction is None:
            request = unary.request(call)
            return unary.read(call, await self._send(call.rpc, request, attempts.remaining()))
        num_bytes = correction.num_bytes
        if self._router.asks(num_bytes):
            await self._ask(attempts.remaining(), call.request_id)
        way = self._router.choose(num_bytes)
        result: Any
        if way == "shared_memory":
            try:
                result = await self._correct_by_shared_memory(correction, attempts)
            except UnusableError as why:
                if self._closed.is_set():
                    raise client_closed(call.request_id) from None
                way = self._router.without_shared_memory(why)
        if way != "shared_memory" and num_bytes >= LARGE_BYTES:
            keep_freed_memory()
        if way == "stream":
            result = await correct_by_stream(
                partial(
                    self._connected().stream_stream(SERVICE + "CorrectStream"),
                    metadata=self._access.metadata(),
                ),
                correction,
                self._router.chunk_bytes,
                attempts.remaining(),
                attempts.admitted,
            )
        elif way == "unary":
            correction.report(0)
            answer = await self._send("Correct", unary.encode(correction), attempts.remaining())
            correction.report(num_bytes)
            result = unary.decode(correction, answer)
        return result  # type: ignore[no-any-return]

    async def _correct_by_shared_memory(
        self, correction: Correction[Any], attempts: Attempts
    ) -> Result[Any]:
        # In threads, since they allocate memory, copy, and wait for the server.
        seconds = attempts.remaining()
        making = partial(open_exchange, self._router.pool(), correction, seconds)
        exchange: Exchange = await _beside(making, seconds, correction)
        with contextlib.closing(exchange):
            correction.report(0)
            while True:
                message: bytes = await _beside(exchange.message, attempts.remaining(), correction)
                try:
                    answer = await self._send("Correct", message, attempts.remaining())
                    break
                except grpc.RpcError as error:
                    if not exchange.should_resend(from_rpc_error(error)):
                        raise
            correction.report(correction.num_bytes)
            return exchange.read(answer)

    async def _ask(self, timeout: float | None, request_id: str | None = None) -> None:
        """Requests the server's capabilities."""
        try:
            answer = await self._send("GetServerInfo", b"", timeout)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            self._router.capabilities = Capabilities()
            return
        call = replace(calls.server_info(), request_id=request_id)
        self._router.learn(unary.read(call, answer))

    async def _send(self, rpc: str, message: bytes, timeout: float | None) -> bytes:
        call = self._connected().unary_unary(SERVICE + rpc)
        answer: bytes = await call(message, timeout=timeout, metadata=self._access.metadata())
        return answer

    def _connected(self) -> Any:
        # A channel belongs to the loop that creates it.
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError(
                "this client belongs to the event loop of its first call, and this is another one: "
                "make a client in each loop, as each asyncio.run() has its own"
            )
        return self._access.channel(grpc.aio)

    async def _closes_within(self, seconds: float) -> bool:
        try:
            return await asyncio.wait_for(self._closed.wait(), seconds)
        except asyncio.TimeoutError:  # the builtin one since Python 3.11
            return False


async def _beside(
    work: Callable[[], Any], seconds: float | None, correction: Correction[Any]
) -> Any:
    """Returns the result of a thread, for which the call waits no longer than its time."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.wait([working], timeout=seconds)
        if not working.done():  # other calls may keep all threads busy
            raise DeadlineError(
                "Deadline Exceeded while the batch is placed in shared memory",
                code=StatusCode.DEADLINE_EXCEEDED,
                request_id=correction.head["request_id"],
            )
        return working.result()
    except BaseException:
        working.add_done_callback(_close_result)
        raise


def _close_result(working: asyncio.Future[Any]) -> None:
    """Frees the memory of an exchange after its call has ended."""
    if not working.cancelled() and working.exception() is None:
        result = working.result()
        if isinstance(result, Exchange):
            result.close()


def _this_task_is_cancelled() -> bool:
    """False before Python 3.11, which does not report it."""
    return bool(getattr(asyncio.current_task(), "cancelling", int)())
