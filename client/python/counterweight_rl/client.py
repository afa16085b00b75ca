"""The client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal

import grpc
import numpy as np

from counterweight_rl import calls
from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.choices import NonFinitePolicy
from counterweight_rl.config import GlobalCounts, Method
from counterweight_rl.correction import Progress
from counterweight_rl.errors import client_closed
from counterweight_rl.info import MethodInfo, ServerInfo
from counterweight_rl.result import Result
from counterweight_rl.shared_memory.shared_arrays import Use, empty
from counterweight_rl.transport.channel import TlsConfig
from counterweight_rl.transport.connection_sync import Connection
from counterweight_rl.transport.retry import DEFAULT, RetryPolicy
from counterweight_rl.transport.router import DEFAULT_CHUNK_BYTES, Transport
from counterweight_rl.transport.snapshot import snapshot


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
        transport: Transport = "auto",
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
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
            transport: How batches travel. "unary": as one message, which the server bounds.
                "stream": in chunks, any size. "shared_memory": not at all, on Linux, if target is
                "unix:..." and the server offers it. "auto": small ones (below 2 MiB) as one
                message, others by the fastest of the three that the server has. Results and errors
                are the same.
            chunk_bytes: Bytes of a stream's chunks, 1 to 16 MiB; less if the server wants less.

        Raises:
            ValueError: A number out of its range, or no such transport.
        """
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1; got {max_in_flight}")
        self._connection = Connection(target, timeout, tls, retry, transport, chunk_bytes)
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
            self._connection.closed.set()
            pending = list(self._in_flight)
        self._connection.end_calls()
        futures.wait(pending)
        self._workers.shutdown(wait=False)
        self._connection.router.close()

    def correct(
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
        return self._connection.run(call)

    def submit(
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
    ) -> futures.Future[Result[ArrayT]]:
        """``correct`` in the background: a future of its Result.

        Blocks while ``max_in_flight`` batches are in flight. The arrays are copied before it
        returns and may be reused then, whatever the transport; those of ``empty`` are not copied,
        and must not change before the future is done, nor may those in ``out``. All errors are in
        the future, wrong arguments included. A future cannot be cancelled once it runs; ``close``
        ends all of them. Arguments and errors are those of ``correct``.
        """
        self._slots.acquire()
        release: Callable[[], None] = lambda: None  # noqa: E731
        try:
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
            assert call.correction is not None
            pool = self._connection.router.pool_of(call.correction.num_bytes)
            correction, release = snapshot(call.correction, pool)
            call = replace(call, decode=correction.read, correction=correction)
            with self._lock:
                if self._connection.closed.is_set():
                    raise client_closed(call.request_id)
                future = self._workers.submit(self._connection.run, call)
                self._in_flight.add(future)
        except Exception as error:
            release()
            self._slots.release()
            failed: futures.Future[Result[ArrayT]] = futures.Future()
            failed.set_exception(error)
            return failed
        future.add_done_callback(lambda _: release())
        future.add_done_callback(self._finished)
        return future

    def empty(
        self, shape: int | Sequence[int], dtype: Any = np.float32, access: Use = "input"
    ) -> Any:
        """An array that lives in memory which the server can map, so that its bytes need not move.

        Batches whose inputs are such arrays (or contiguous parts of them), and answers that are
        written into them by ``out``, are neither sent nor copied. The memory is given back when the
        last view of it is gone, and may be used as any other until then. Where the server offers
        no shared memory, or there is none left, it is an ordinary array.

        Args:
            shape: Sizes, >= 0.
            dtype: numpy's or torch's; a torch.dtype makes it a torch tensor.
            access: "input": the server reads it. "output": it writes it; for ``out``.

        Returns:
            A numpy array or torch tensor of undefined content.
        """
        return empty(self._connection.pool_for_arrays(), shape, dtype, access)

    def list_methods(self, *, timeout: float | None = None) -> list[MethodInfo]:
        """Every named method, in the table's order.

        Args:
            timeout: Seconds, retries included; None: the client's.

        Raises:
            CounterweightError: One of its kinds, as in ``correct``.
        """
        return self._connection.run(calls.list_methods(timeout=timeout))

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """The server's identity and limits.

        Args:
            timeout: Seconds, retries included; None: the client's.

        Raises:
            CounterweightError: One of its kinds, as in ``correct``.
        """
        return self._connection.run(calls.server_info(timeout=timeout))

    def _finished(self, future: futures.Future[Any]) -> None:
        with self._lock:
            self._in_flight.discard(future)
        self._slots.release()
