"""The client for asyncio.

    async with counterweight_rl.aio.Client("localhost:50051") as client:
        results = await asyncio.gather(*(client.correct(**batch) for batch in batches))

The same calls, arguments, results and errors as ``counterweight_rl.Client``. Cancelling the task
that awaits a call cancels it on the server too. Arrays are converted and copied in the event loop
(a batch of 8 Mi tokens takes it tens of milliseconds, in a stream a millisecond at a time; into
shared memory, a thread copies). The arrays of a call must not change before it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

import grpc
import grpc.aio
import numpy as np

from counterweight_rl import calls
from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.choices import NonFinitePolicy
from counterweight_rl.config import GlobalCounts, Method
from counterweight_rl.correction import Progress
from counterweight_rl.info import MethodInfo, ServerInfo
from counterweight_rl.result import Result
from counterweight_rl.shared_memory.shared_arrays import Use, empty
from counterweight_rl.transport.channel import TlsConfig
from counterweight_rl.transport.connection_aio import Connection
from counterweight_rl.transport.retry import DEFAULT, RetryPolicy
from counterweight_rl.transport.router import DEFAULT_CHUNK_BYTES, Transport

__all__ = ["Client"]


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
        self._connection = Connection(target, timeout, tls, retry, transport, chunk_bytes)

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
        await self._connection.close()

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
        return await self._connection.run(call)

    async def list_methods(self, *, timeout: float | None = None) -> list[MethodInfo]:
        """Every named method, in the table's order.

        Args:
            timeout: Seconds, retries included; None: the client's.

        Raises:
            CounterweightError: One of its kinds, as in ``correct``.
        """
        return await self._connection.run(calls.list_methods(timeout=timeout))

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """The server's identity and limits.

        Args:
            timeout: Seconds, retries included; None: the client's.

        Raises:
            CounterweightError: One of its kinds, as in ``correct``.
        """
        return await self._connection.run(calls.server_info(timeout=timeout))

    async def empty(
        self, shape: int | Sequence[int], dtype: Any = np.float32, access: Use = "input"
    ) -> Any:
        """An array in memory that the server can map; see ``counterweight_rl.Client.empty``."""
        return empty(await self._connection.pool_for_arrays(), shape, dtype, access)
