"""The client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from types import TracebackType
from typing import Any, Literal, TypeVar

import grpc

from counterweight import calls
from counterweight.channel import SERVICE, TlsConfig, connect
from counterweight.errors import client_closed, from_rpc_error
from counterweight.retry import DEFAULT, Retry, RetryPolicy
from counterweight.signatures import answers, answers_later

T = TypeVar("T")


class Client:
    """A connection to one Counterweight server.

    Thread-safe: any number of threads may call at once and share the connection. Nothing is sent
    before the first call. Not to be used across fork().
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float | None = 60.0,
        tls: TlsConfig | grpc.ChannelCredentials | None = None,
        retry: RetryPolicy | Literal[False] = DEFAULT,
        max_in_flight: int = 4,
    ) -> None:
        """Prepares a connection.

        Args:
            target: "host:port" or "unix:/path/to/socket".
            timeout: Seconds that each call may take, connecting and retries included; None: no
                limit.
            tls: None: plaintext, for loopback and Unix sockets.
            retry: How often a call that the server did not admit is tried again, always with the
                same request_id. False: never.
            max_in_flight: Batches that ``submit`` keeps in flight at once, each with a copy of its
                arrays; >= 1.
        """
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1; got {max_in_flight}")
        self._retry = Retry(retry)
        self._timeout = timeout
        self._closed = threading.Event()
        self._channel = connect(grpc, target, tls)
        # Bytes in, bytes out: see wire.py.
        self._rpcs: dict[str, Callable[..., bytes]] = {
            rpc: self._channel.unary_unary(SERVICE + rpc) for rpc in calls.RPCS
        }
        self._slots = threading.BoundedSemaphore(max_in_flight)
        self._workers = futures.ThreadPoolExecutor(max_in_flight, "counterweight")
        self._in_flight: set[futures.Future[Any]] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Idempotent.

        Calls in flight, submitted ones included, fail with code CANCELLED, and so does every later
        call. When it returns, all futures are done.
        """
        with self._lock:
            self._closed.set()
            pending = list(self._in_flight)
        self._channel.close()
        futures.wait(pending)
        self._workers.shutdown(wait=False)

    @answers(calls.correct)
    def correct(self, **arguments: Any) -> Any:
        """Asks for one batch and waits for the answer."""
        return self._run(calls.correct(**arguments))

    @answers_later(calls.correct)
    def submit(self, **arguments: Any) -> futures.Future[Any]:
        """``correct`` in the background: a future of its Result.

        Blocks while ``max_in_flight`` batches are in flight. The arrays are read before it returns
        and may be reused then; those in ``out`` may be when the future is done. All errors are in
        the future, wrong arguments included. A future cannot be cancelled once it runs; ``close``
        ends all of them.
        """
        self._slots.acquire()
        try:
            call = calls.correct(**arguments)
            with self._lock:
                if self._closed.is_set():
                    raise client_closed(call.request_id)
                future = self._workers.submit(self._run, call)
                self._in_flight.add(future)
        except Exception as error:
            self._slots.release()
            future = futures.Future()
            future.set_exception(error)
            return future
        future.add_done_callback(self._landed)
        return future

    @answers(calls.list_methods)
    def list_methods(self, **arguments: Any) -> Any:
        """Asks for the methods table."""
        return self._run(calls.list_methods(**arguments))

    @answers(calls.server_info)
    def server_info(self, **arguments: Any) -> Any:
        """Asks the server about itself."""
        return self._run(calls.server_info(**arguments))

    def _landed(self, future: futures.Future[Any]) -> None:
        with self._lock:
            self._in_flight.discard(future)
        self._slots.release()

    def _run(self, call: calls.Call[T]) -> T:
        attempts = self._retry.begin(self._timeout if call.timeout is None else call.timeout)
        while True:
            try:
                return call.read(self._rpcs[call.rpc](call.request, timeout=attempts.remaining()))
            except grpc.RpcError as error:
                failure = from_rpc_error(error, call.request_id, closed=self._closed.is_set())
                pause = attempts.pause(failure)
                if pause is None or self._closed.wait(pause):
                    raise failure from error
            except ValueError as error:
                # grpc's word for a channel that was closed before the call.
                if not self._closed.is_set():
                    raise
                raise client_closed(call.request_id) from error
