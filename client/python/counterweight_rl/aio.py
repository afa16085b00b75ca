"""The client for asyncio.

    async with counterweight_rl.aio.Client("localhost:50051") as client:
        results = await asyncio.gather(*(client.correct(**batch) for batch in batches))

It has the calls, arguments, results and errors of ``counterweight_rl.Client``. Cancelling the task
that awaits a call cancels it on the server too. Arrays are converted and copied in the event loop:
a batch of 8 Mi tokens takes tens of milliseconds, in a stream a millisecond at a time; a thread
copies into shared memory. The arrays of a call must not change before it is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from counterweight_rl import calls
from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.choices import NonFinitePolicy
from counterweight_rl.config import GlobalCounts, Method
from counterweight_rl.correction import Progress
from counterweight_rl.info import MethodInfo, ServerInfo
from counterweight_rl.local.connection_aio import LocalConnection
from counterweight_rl.local.publisher import open_publisher, refuse_publish
from counterweight_rl.local.target import read_target
from counterweight_rl.one_process import OneProcess, refuse_at_exit
from counterweight_rl.result import Result
from counterweight_rl.shared_memory.shared_arrays import Use, empty
from counterweight_rl.transport.access import Access
from counterweight_rl.transport.channel import TlsConfig, check_installed
from counterweight_rl.transport.fallback import OnUnavailable, check_local
from counterweight_rl.transport.retry import DEFAULT, RetryPolicy
from counterweight_rl.transport.router import DEFAULT_CHUNK_BYTES, Transport
from counterweight_rl.transport.settings import read_timeout
from counterweight_rl.transport.target import read_server

__all__ = ["Client"]

if TYPE_CHECKING:
    import grpc

    from counterweight_rl.transport.connection_aio import Connection


class Client(OneProcess):
    """A connection to one Counterweight server, for the tasks of one event loop.

    It belongs to the loop of its first call; you may create it before there is a loop. It sends
    nothing before the first call. Do not use it across fork().
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float | None = 60.0,
        tls: TlsConfig | grpc.ChannelCredentials | None = None,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        allow_insecure_token: bool = False,
        retry: RetryPolicy | Literal[False] = DEFAULT,
        transport: Transport = "auto",
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        on_unavailable: OnUnavailable = "raise",
        publish: str | None = None,
    ) -> None:
        """Prepares a connection; the arguments are those of ``counterweight_rl.Client``."""
        refuse_at_exit()
        timeout = read_timeout(timeout)
        self._connection: Connection | LocalConnection
        local = read_target(target)
        if local is not None:
            check_local(transport=transport, on_unavailable=on_unavailable)
            publisher = open_publisher(publish, tls, token, token_file, allow_insecure_token)
            self._connection = LocalConnection(local, timeout, publisher)
        else:
            refuse_publish(publish)
            server = read_server(target)
            check_installed(target)
            from counterweight_rl.transport.connection_aio import Connection

            access = Access(server, tls, token, token_file, allow_insecure_token)
            self._connection = Connection(
                server, timeout, access, retry, transport, chunk_bytes, on_unavailable
            )

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
        row_divisors: Iterable[float] | None = None,
        policy_versions: ArrayT | None = None,
        version_spans: Iterable[Any] | None = None,
        metrics: bool = True,
        out: Mapping[str, ArrayT] | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Result[ArrayT]:
        """Corrects one batch; computes its policy loss and gradient if the method has a loss.

        Arrays are numpy arrays or torch tensors (CPU or CUDA, one device), all of one kind and
        shape: padded [B, T], or packed [sum of sequence_lengths]; or torch's nested tensors of [B,
        lengths], and then results are nested. Objects with ``__dlpack__`` in host memory or with
        the buffer protocol count as numpy arrays, and so do the results.
        Log-probs and advantages are float32, float16, bfloat16 (torch), or float64, which is sent
        as float32. Contiguous arrays of a dtype that the wire carries are read in place; others are
        converted first, and CUDA tensors are copied to the host through pinned memory. The method
        determines which inputs are needed; at least two log-probs.

        Args:
            response_mask: Boolean, integer or floating, each 0 or 1; 1 = the token counts.
            method: A preset's name, Preset, CorrectionConfig or Dialect.
            rollout_log_probs: log mu of the sampling policy, as the inference engine reported it;
                nats.
            old_log_probs: log pi_old, recomputed by the trainer at the start of the step; nats.
            current_log_probs: log pi_theta at this gradient step; nats.
            ref_log_probs: log pi_ref, for a KL penalty; nats.
            advantages: Advantage of each token, or one per sequence, [B] or [B, 1], which applies
                to every token of the sequence; any unit. Losses need them, and so do rules that
                depend on their sign.
            sequence_lengths: Positions of each sequence, for packed arrays.
            padded_length: Padded width of a packed batch, read only where a peer's formula needs
                it. None: the longest sequence.
            outputs: Some of "weights", "keep_mask", "token_reasons", "sequence_reasons", "loss",
                "gradient". None: the keep mask, the weights if the method has them, and loss and
                gradient if it has a loss: a CorrectionConfig or preset with a policy loss; a
                Dialect if current_log_probs and advantages are given.
            run: Training run, [A-Za-z0-9_.-]{1,64}; a label of the drift metrics in Prometheus.
            replica: Data-parallel replica or worker, [A-Za-z0-9_.-]{1,64}; for the server's log.
            policy_version: Version of the policy being trained, >= 0; a gauge of the run in
                Prometheus. Required with versions of tokens.
            request_id: Identifier of this request, at most 128 bytes of printable ASCII. Drift
                metrics count each request_id once, so retry with the same one. None: the client
                makes one, which results and errors carry.
            non_finite: Policy for a NaN or infinity where response_mask is 1.
            seed: Seed of random choices (CLIP_COV). None: 0.
            global_counts: Counts over all data-parallel ranks, of the step; losses divide by
                them, so that the ranks' losses add up, and so do normalized weights.
            group_ids: Group (prompt) of each sequence, [B] integers. Losses that average within
                groups (skyrl's prompt_mean) need them; other methods refuse them.
            row_divisors: Divisor of each sequence's sum, [B] numbers > 0, instead of its number of
                tokens, in losses aggregated by SEQ_MEAN_TOKEN_MEAN; other methods refuse them.
            policy_versions: Version of the policy that sampled each token, integers of the shape of
                response_mask (int32 is read in place), from 0 to ``policy_version``; -1 = unknown.
                The result then has ``staleness``.
            version_spans: The same as (sequence, start, end, policy_version) for positions [start,
                end) of a sequence, ascending, without overlap; other positions are unknown. Instead
                of policy_versions. Or for each row the weight_versions of vLLM or SGLang; see
                ``counterweight_rl.spans_of``.
            metrics: False leaves ``metrics`` and ``rules`` of the result empty and publishes no
                drift of this batch; arrays, loss and errors are the same and arrive sooner. Use it
                for batches whose drift is already known, such as later epochs over the same
                rollouts.
            out: Destination arrays by output name: of the kind, shape, dtype and device that the
                output has in Result, contiguous and writable. They become the Result's arrays;
                after an error their content is undefined. ``out`` does not select outputs.
            progress: Called with (bytes sent, total bytes) of the tensors: with 0 before the first
                byte, with the total when the answer has come, and from 0 again for another attempt.
                Streams also call it after every chunk, from another thread (asyncio: in the event
                loop), never concurrently. An exception that it raises cancels the call and is
                raised by it.
            timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

        Raises:
            TypeError: An argument is of a wrong type; the message names it.
            ValueError: An unknown choice.
            InvalidRequestError: The request is wrong; ``violations`` lists every wrong field.
            OverloadedError: The server has no room, or the request exceeds its limits.
            UnavailableError: No server answers, or the server is draining.
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
            row_divisors=row_divisors,
            policy_versions=policy_versions,
            version_spans=version_spans,
            metrics=metrics,
            out=out,
            progress=progress,
            timeout=timeout,
        )
        return await self._connection.run(call)

    async def list_methods(self, *, timeout: float | None = None) -> list[MethodInfo]:
        """Returns every named method, in the table's order.

        Args:
            timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

        Raises:
            CounterweightError: The errors of ``correct``.
        """
        return await self._connection.run(calls.list_methods(timeout=timeout))

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Returns the server's identity and limits.

        Args:
            timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

        Raises:
            CounterweightError: The errors of ``correct``.
        """
        info = await self._connection.run(calls.server_info(timeout=timeout))
        self._connection.compare_versions(info.version)
        return info

    async def empty(
        self, shape: int | Sequence[int], dtype: Any = np.float32, access: Use = "input"
    ) -> Any:
        """Returns an array in shared memory; see ``counterweight_rl.Client.empty``."""
        return empty(await self._connection.pool_for_arrays(), shape, dtype, access)

    @property
    def fallbacks(self) -> dict[str, int]:
        """How many answers were given instead of the server's; see ``counterweight_rl.Client``."""
        return self._connection.fallbacks

    @property
    def publish_dropped(self) -> int:
        """How many batches' sums ``publish`` has given up; see ``counterweight_rl.Client``."""
        return self._connection.publish_dropped
