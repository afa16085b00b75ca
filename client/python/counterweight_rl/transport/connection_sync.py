"""The connection of a blocking client: transports and retries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

import grpc

from counterweight_rl import calls
from counterweight_rl.correction import Correction
from counterweight_rl.errors import (
    CounterweightError,
    InvalidRequestError,
    UnavailableError,
    client_closed,
    from_rpc_error,
)
from counterweight_rl.local.placing import STOP
from counterweight_rl.result import Result
from counterweight_rl.shared_memory.pool import Pool
from counterweight_rl.shared_memory.registry import UnusableError
from counterweight_rl.step_report import REPORTS
from counterweight_rl.transport import unary
from counterweight_rl.transport.access import Access
from counterweight_rl.transport.channel import SERVICE
from counterweight_rl.transport.fallback import Fallback, OnUnavailable
from counterweight_rl.transport.heap import LARGE_BYTES, keep_freed_memory
from counterweight_rl.transport.prepared_calls import PreparedCalls
from counterweight_rl.transport.prepared_exchange import open_exchange
from counterweight_rl.transport.publisher import Publisher
from counterweight_rl.transport.retry import Attempts, Retry, RetryPolicy
from counterweight_rl.transport.router import Capabilities, Router, Transport
from counterweight_rl.transport.stream_sync import correct_by_stream
from counterweight_rl.transport.target import Target
from counterweight_rl.transport.write_watchdog import Peer

T = TypeVar("T")


class Connection:
    """One client's channel and its server's capabilities. Thread-safe.

    Attributes:
        router: Chooses the transport of a batch.
        closed: Set once, when calls must end and no others may begin.
    """

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
        self.router = Router(target, transport, chunk_bytes)
        self.closed = threading.Event()
        self._retry = Retry(retry)
        self._fallback = Fallback(on_unavailable)
        self._timeout = timeout
        self._access = access
        self._peer = Peer(target)
        self._prepared = PreparedCalls()

    def end_calls(self) -> None:
        """Ends calls in flight and later ones with code CANCELLED. Idempotent."""
        self.closed.set()
        self._fallback.close()
        self._peer.closes()
        self.router.stop()
        for channel in self._access.close():
            channel.close()

    def compare_versions(self, server: str) -> None:
        """Warns once of a server of another version."""
        self.router.compare_versions(server)

    def close(self) -> None:
        """Gives all shared memory back. Idempotent."""
        self.router.close()

    @property
    def computes_on_device(self) -> bool:
        """No: a server has its own ways to memory of a device."""
        return False

    def pool_of(self, num_bytes: int) -> Pool | None:
        """Shared memory if a batch of that size goes there, as far as is known by now."""
        return self.router.pool_of(num_bytes)

    @property
    def publishes(self) -> bool:
        """False: the server itself shows what it corrects."""
        return False

    @property
    def publish_dropped(self) -> int:
        """None: a server publishes what it corrects."""
        return 0

    def open_reporter(self) -> Publisher:
        """Returns what sends reports of steps from a thread of its own; the caller closes it."""
        access = self._access
        return Publisher(access.target.text, access.another, REPORTS)

    @property
    def fallbacks(self) -> dict[str, int]:
        """Answers that were given instead of the server's, by ``on_unavailable``."""
        return self._fallback.counts

    def pool_for_arrays(self) -> Pool | None:
        """Returns the pool for arrays of the caller; None without shared memory."""
        if not self.router.may_share():
            return None
        if self.router.capabilities is None:
            # Without a server, the array serves a later one. grpc raises ValueError for a closed
            # channel; a closed router then creates no shared memory.
            with (
                suppress(grpc.RpcError, ValueError, CounterweightError),
                self._peer.bounds(self._timeout),
            ):
                self._ask(self._timeout)
        return self.router.pool_for_arrays()

    def correct(self, call: Mapping[str, Any]) -> Result[Any]:
        """Runs a call of ``correct``."""
        key = self._prepared.key(call)
        prepared = self._prepared.call(key, call)
        if prepared is not None:
            return self.run(prepared)
        whole: calls.Call[Result[Any]] = calls.correct(**call)
        answer = self.run(whole)
        self._prepared.learn(key, call, whole)
        return answer

    def later(self, call: Mapping[str, Any]) -> None:
        """None: a call in the background has no shorter way."""
        del call

    def run(self, call: calls.Call[T]) -> T:
        """Sends a call, retries it by the policy, and waits for the answer.

        Raises:
            CounterweightError: The call failed; its type has the kind.
        """
        attempts = self._retry.begin(call.limit(self._timeout))
        while True:
            try:
                with self._peer.bounds(attempts.remaining()):
                    answer = self._attempt(call, attempts)
                self._fallback.answered(call, answer)
                return answer
            except grpc.RpcError as error:
                failure = call.failure(error, closed=self.closed.is_set())
            except UnavailableError as error:
                failure = error
            except ValueError as error:
                # grpc raises it for a channel that was closed before the call.
                if isinstance(error, InvalidRequestError) or not self.closed.is_set():
                    raise
                raise client_closed(call.request_id) from None
            # Outside of the handler, so that grpc's traceback does not precede the caller's.
            if self.router.falls_back(failure):
                continue
            pause = attempts.pause(failure) if self._fallback.waits(failure) else None
            if pause is None:
                if not self.closed.is_set() and self._fallback.takes(call, failure):
                    return self._fall_back(call, failure, attempts.remaining())
                raise failure
            if self.closed.wait(pause):
                raise client_closed(call.request_id)

    def _fall_back(
        self, call: calls.Call[T], failure: CounterweightError, timeout: float | None
    ) -> T:
        answer: Any
        if self._fallback.choice == "identity":
            answer = self._fallback.identity(call, failure)
        else:
            result: Any = self._fallback.compute(call, timeout, STOP())
            answer = self._fallback.computed(result, failure)
        call.report_end()
        return answer  # type: ignore[no-any-return]

    def _send(self, rpc: str, message: bytes, timeout: float | None) -> bytes:
        # Bytes in, bytes out: see arrays/framing.py.
        call = self._access.channel(grpc).unary_unary(SERVICE + rpc)
        answer: bytes = call(message, timeout=timeout, metadata=self._access.metadata())
        return answer

    def _stream(self) -> Callable[..., Any]:
        return partial(
            self._access.channel(grpc).stream_stream(SERVICE + "CorrectStream"),
            metadata=self._access.metadata(),
        )

    def _attempt(self, call: calls.Call[T], attempts: Attempts) -> T:
        correction = call.correction
        if correction is None:
            return unary.read(call, self._send(call.rpc, unary.request(call), attempts.remaining()))
        num_bytes = correction.num_bytes
        if self.router.asks(num_bytes):
            self._ask(attempts.remaining(), call.request_id)
        way = self.router.choose(num_bytes)
        result: Any
        if way == "shared_memory":
            try:
                result = self._correct_by_shared_memory(correction, attempts)
            except UnusableError as why:
                if self.closed.is_set():
                    raise client_closed(call.request_id) from None
                way = self.router.without_shared_memory(why)
        if way != "shared_memory" and num_bytes >= LARGE_BYTES:
            keep_freed_memory()
        if way == "stream":
            result = correct_by_stream(
                self._stream(),
                correction,
                self.router.chunk_bytes,
                attempts.remaining(),
                attempts.admitted,
            )
        elif way == "unary":
            correction.report(0)
            answer = self._send("Correct", unary.encode(correction), attempts.remaining())
            correction.report(num_bytes)
            result = unary.decode(correction, answer)
        return result  # type: ignore[no-any-return]

    def _correct_by_shared_memory(
        self, correction: Correction[Any], attempts: Attempts
    ) -> Result[Any]:
        pool = self.router.pool()
        with closing(open_exchange(pool, correction, attempts.remaining())) as exchange:
            correction.report(0)
            while True:
                message = exchange.message()
                try:
                    answer = self._send("Correct", message, attempts.remaining())
                    break
                except grpc.RpcError as error:
                    if not exchange.should_resend(from_rpc_error(error)):
                        raise
            correction.report(correction.num_bytes)
            return exchange.read(answer)

    def _ask(self, timeout: float | None, request_id: str | None = None) -> None:
        """Requests the server's capabilities."""
        try:
            answer = self._send("GetServerInfo", b"", timeout)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            self.router.capabilities = Capabilities()
            return
        call = replace(calls.server_info(), request_id=request_id)
        self.router.learn(unary.read(call, answer))
