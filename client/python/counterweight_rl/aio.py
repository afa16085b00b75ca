"""The client for asyncio.

    async with counterweight_rl.aio.Client("localhost:50051") as client:
        results = await asyncio.gather(*(client.correct(**batch) for batch in batches))

The same calls, arguments, results and errors as ``counterweight_rl.Client``. Cancelling the task
that awaits a call cancels it on the server too. Arrays are converted and copied in the event loop
(a batch of 8 Mi tokens takes it tens of milliseconds, in a stream a millisecond at a time; into
shared memory, a thread copies). The arrays of a call must not change before it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypeVar

import grpc
import grpc.aio
import numpy as np

from counterweight_rl import calls
from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.choices import NonFinitePolicy
from counterweight_rl.config import GlobalCounts, Method
from counterweight_rl.correction import Correction, Progress
from counterweight_rl.errors import client_closed, from_rpc_error
from counterweight_rl.info import MethodInfo, ServerInfo
from counterweight_rl.result import Result
from counterweight_rl.shared_memory.exchange import Exchange
from counterweight_rl.shared_memory.pool import UnusableError
from counterweight_rl.shared_memory.shared_arrays import Use, empty
from counterweight_rl.transport.channel import SERVICE, TlsConfig, connect, make_metadata
from counterweight_rl.transport.retry import DEFAULT, Attempts, Retry, RetryPolicy
from counterweight_rl.transport.router import DEFAULT_CHUNK_BYTES, Capabilities, Router, Transport
from counterweight_rl.transport.stream_aio import correct_by_stream

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
        transport: Transport = "auto",
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    ) -> None:
        """Prepares a connection; the arguments are those of ``counterweight_rl.Client``."""
        self._target = target
        self._tls = tls
        self._timeout = timeout
        self._retry = Retry(retry)
        self._router = Router(target, transport, chunk_bytes)
        self._metadata = make_metadata()
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
        self._router.close()

    async def correct(
        self,
        *,
        response_mask: ArrayT,
        method: Method,
        rollout_log_probs: ArrayT | None = None,
        old_log_probs: ArrayT | None = None,
        current_log_probs: ArrayT | None = None,
        ref_log_probs: ArrayT | None = None,
        advantages: ArrayT | None = None,
        sequence_lengths: Iterable[int] | None = None,
        padded_length: int | None = None,
        outputs: Iterable[str] | None = None,
        run: str | None = None,
        replica: str | None = None,
        policy_version: int | None = None,
        request_id: str | None = None,
        non_finite: NonFinitePolicy | str = NonFinitePolicy.REJECT,
        seed: int | None = None,
        global_counts: GlobalCounts | None = None,
        group_ids: Iterable[int] | None = None,
        metrics: bool = True,
        out: Mapping[str, ArrayT] | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Result[ArrayT]:
        """Corrects one batch; computes its policy loss and gradient if the method has a loss.

        Arrays are numpy arrays or torch tensors (CPU or CUDA, one device), all of one kind and
        shape: padded [B, T], or packed [sum of sequence_lengths]. What has ``__dlpack__`` and lies
        in host memory, or the buffer protocol, is taken for a numpy array, and so are the results.
        Log-probs and advantages are float32, float16, bfloat16 (torch), or float64, which is sent
        as float32. Contiguous arrays of a dtype that the wire carries are read where they lie;
        others are converted first, and CUDA tensors copied to the host through pinned memory. Which
        inputs are needed follows from the method; at least two log-probs.

        Args:
            response_mask: Boolean, integer or floating, each 0 or 1; 1 = the token counts.
            method: A preset's name, Preset, CorrectionConfig or Dialect.
            rollout_log_probs: log mu of the policy that sampled, as the inference engine reported
                it; nats.
            old_log_probs: log pi_old, the trainer's recomputation at the start of the step; nats.
            current_log_probs: log pi_theta at this gradient step; nats.
            ref_log_probs: log pi_ref, for a KL penalty; nats.
            advantages: Advantage of each token, or one per sequence, [B] or [B, 1], which every
                token of the sequence gets; any unit. For losses, and rules that look at its sign.
            sequence_lengths: Positions of each sequence, for packed arrays.
            padded_length: Width that a packed batch would have if padded, read only where a peer's
                formula needs it. None: the longest sequence.
            outputs: Some of "weights", "keep_mask", "token_reasons", "sequence_reasons", "loss",
                "gradient". None: the keep mask, the weights if the method has them, and loss and
                gradient if it has a loss: a CorrectionConfig or preset with a policy loss; a
                Dialect if current_log_probs and advantages are given.
            run: Training run, [A-Za-z0-9_.-]{1,64}; a label of the drift metrics in Prometheus.
            replica: Data-parallel replica or worker, [A-Za-z0-9_.-]{1,64}; for the server's log.
            policy_version: Version of the policy being trained, >= 0; for the server's log.
            request_id: Name of this request, at most 128 bytes of printable ASCII. Drift metrics
                are published once per request_id, so retry with the same one. None: a new one,
                which results and errors carry.
            non_finite: What to do about a NaN or infinity where response_mask is 1.
            seed: Seed of random choices (CLIP_COV). None: 0.
            global_counts: Counts over all data-parallel ranks, for losses whose denominator is
                GLOBAL and for weights that are normalized.
            group_ids: Group (prompt) of each sequence, [B] integers; for losses that average within
                groups (skyrl's prompt_mean), refused by name elsewhere.
            metrics: False leaves ``metrics`` and ``rules`` of the result empty and publishes no
                drift of this batch; arrays, loss and errors are the same, and come sooner. For
                batches whose drift is known already, such as later epochs over the same rollouts.
            out: Where to write, by the output's name: arrays of the kind, shape, dtype and device
                that the output has in Result, contiguous and writable. They are the Result's arrays
                then; after an error their content is undefined. What is asked for does not change.
            progress: Called with (bytes sent, bytes in all) of the tensors: with 0 before the
                first, with all when the answer is there; again from 0 if the batch is sent again.
                Streams call it after every chunk too, from another thread (asyncio: in the loop),
                never two at a time. What it raises cancels the call and is raised by it.
            timeout: Seconds, retries included; None: the client's.

        Raises:
            TypeError: An argument is of a wrong type; the message names it.
            ValueError: A choice that does not exist.
            InvalidRequestError: The request is wrong; ``violations`` lists every wrong field.
            OverloadedError: The server has no room, or the request exceeds its limits.
            UnavailableError: No server answers, or it is draining.
            DeadlineError: The timeout passed.
            CounterweightError: Anything else; see its ``code``.
        """
        call = calls.correct(
            response_mask=response_mask,
            method=method,
            rollout_log_probs=rollout_log_probs,
            old_log_probs=old_log_probs,
            current_log_probs=current_log_probs,
            ref_log_probs=ref_log_probs,
            advantages=advantages,
            sequence_lengths=sequence_lengths,
            padded_length=padded_length,
            outputs=outputs,
            run=run,
            replica=replica,
            policy_version=policy_version,
            request_id=request_id,
            non_finite=non_finite,
            seed=seed,
            global_counts=global_counts,
            group_ids=group_ids,
            metrics=metrics,
            out=out,
            progress=progress,
            timeout=timeout,
        )
        return await self._run(call)

    async def list_methods(self, *, timeout: float | None = None) -> list[MethodInfo]:
        """Every named method, in the table's order.

        Args:
            timeout: Seconds, retries included; None: the client's.

        Raises:
            CounterweightError: One of its kinds, as in ``correct``.
        """
        return await self._run(calls.list_methods(timeout=timeout))

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """The server's identity and limits.

        Args:
            timeout: Seconds, retries included; None: the client's.

        Raises:
            CounterweightError: One of its kinds, as in ``correct``.
        """
        return await self._run(calls.server_info(timeout=timeout))

    async def empty(
        self, shape: int | Sequence[int], dtype: Any = np.float32, access: Use = "input"
    ) -> Any:
        """An array in memory that the server can map; see ``counterweight_rl.Client.empty``."""
        pool = None
        if self._router.may_share() and not self._closed.is_set():
            if self._router.capabilities is None:
                with contextlib.suppress(grpc.RpcError):
                    await self._ask(self._timeout)
            pool = self._router.pool_for_arrays()
        return empty(pool, shape, dtype, access)

    async def _run(self, call: calls.Call[T]) -> T:
        attempts = self._retry.begin(self._timeout if call.timeout is None else call.timeout)
        while not self._closed.is_set():
            try:
                return await self._attempt(call, attempts)
            except grpc.RpcError as error:
                failure = call.failure(error, closed=self._closed.is_set())
                if self._router.falls_back(failure):
                    continue
                pause = attempts.pause(failure)
                if pause is None or await self._closes_within(pause):
                    raise failure from error
            except asyncio.CancelledError:
                # grpc says so of calls that close() ended, as asyncio does of this task's end.
                if not self._closed.is_set() or _this_task_is_cancelled():
                    raise
        raise client_closed(call.request_id)

    async def _attempt(self, call: calls.Call[T], attempts: Attempts) -> T:
        correction = call.correction
        if correction is None:
            return call.read(await self._send(call.rpc, call.request, attempts.remaining()))
        num_bytes = correction.num_bytes
        if self._router.asks(num_bytes):
            await self._ask(attempts.remaining())
        way = self._router.choose(num_bytes)
        result: Any
        if way == "shared_memory":
            try:
                result = await self._correct_by_shared_memory(correction, attempts)
            except UnusableError as why:
                if self._closed.is_set():
                    raise client_closed(call.request_id) from why
                way = self._router.without_shared_memory(why)
        if way == "stream":
            result = await correct_by_stream(
                partial(
                    self._connected().stream_stream(SERVICE + "CorrectStream"),
                    metadata=self._metadata,
                ),
                correction,
                self._router.chunk_bytes,
                attempts.remaining(),
                attempts.admitted,
            )
        elif way == "unary":
            correction.report(0)
            answer = await self._send("Correct", correction.message(), attempts.remaining())
            correction.report(num_bytes)
            result = correction.read(answer)
        return result  # type: ignore[no-any-return]

    async def _correct_by_shared_memory(
        self, correction: Correction[Any], attempts: Attempts
    ) -> Result[Any]:
        with contextlib.closing(await self._exchange(correction)) as exchange:
            correction.report(0)
            while True:
                message = await asyncio.to_thread(exchange.message)
                try:
                    answer = await self._send("Correct", message, attempts.remaining())
                    break
                except grpc.RpcError as error:
                    if not exchange.mends(from_rpc_error(error)):
                        raise
            correction.report(correction.num_bytes)
            return exchange.read(answer)

    async def _exchange(self, correction: Correction[Any]) -> Exchange:
        """In a thread, since it makes memory, copies, and asks the server."""
        pool = self._router.pool()
        making = asyncio.ensure_future(asyncio.to_thread(Exchange, pool, correction))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_close_result)
            raise

    async def _ask(self, timeout: float | None) -> None:
        """What the server offers."""
        try:
            self._router.capabilities = Capabilities.read(
                await self._send("GetServerInfo", b"", timeout)
            )
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            self._router.capabilities = Capabilities()

    async def _send(self, rpc: str, message: bytes, timeout: float | None) -> bytes:
        call = self._connected().unary_unary(SERVICE + rpc)
        answer: bytes = await call(message, timeout=timeout, metadata=self._metadata)
        return answer

    def _connected(self) -> Any:
        if self._channel is None:  # a channel belongs to the loop that it is made in
            self._channel = connect(grpc.aio, self._target, self._tls)
        return self._channel

    async def _closes_within(self, seconds: float) -> bool:
        try:
            return await asyncio.wait_for(self._closed.wait(), seconds)
        except asyncio.TimeoutError:  # the builtin one since Python 3.11
            return False


def _close_result(making: asyncio.Future[Exchange]) -> None:
    """Gives back the memory of an exchange whose call was cancelled."""
    if not making.cancelled() and making.exception() is None:
        making.result().close()


def _this_task_is_cancelled() -> bool:
    """False before Python 3.11, which does not tell."""
    return bool(getattr(asyncio.current_task(), "cancelling", int)())
