"""The blocking client."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent import futures
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from counterweight_rl import calls, declare_run, diagnose_call, group_baseline, step_report
from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.config import Method
from counterweight_rl.declare_run import RunDeclaration
from counterweight_rl.diagnosis import Diagnosis
from counterweight_rl.group_baseline import Baseline, GroupAdvantages
from counterweight_rl.info import MethodInfo, ServerInfo
from counterweight_rl.local.connection_sync import LocalConnection
from counterweight_rl.local.target import check_local, read_target
from counterweight_rl.one_process import OneProcess, refuse_at_exit
from counterweight_rl.partial_sums import PartialSums
from counterweight_rl.prepared_method import PreparedMethod
from counterweight_rl.receipt import Receipt
from counterweight_rl.recording.recorder import open_recorder
from counterweight_rl.recording.settings import Record
from counterweight_rl.result import Result
from counterweight_rl.settings import read_count, read_timeout
from counterweight_rl.shared_memory.shared_arrays import Use, empty
from counterweight_rl.step_report import StepReport
from counterweight_rl.step_totals import StepTotals
from counterweight_rl.transport.access import Access
from counterweight_rl.transport.background import Background
from counterweight_rl.transport.channel import TlsConfig, check_installed
from counterweight_rl.transport.fallback import OnUnavailable
from counterweight_rl.transport.publisher import open_publisher, refuse_publish
from counterweight_rl.transport.retry import DEFAULT, RetryPolicy
from counterweight_rl.transport.router import DEFAULT_CHUNK_BYTES, Transport
from counterweight_rl.transport.target import read_server

if TYPE_CHECKING:
    import grpc
    from typing_extensions import Unpack

    from counterweight_rl.calls import CorrectArguments, FixedArguments
    from counterweight_rl.diagnose_call import DiagnoseArguments
    from counterweight_rl.transport.connection_sync import Connection

__all__ = ["Client"]


class Client(OneProcess):
    """A connection to one Counterweight server, or to none: see ``target``.

    Thread-safe: any number of threads may call concurrently and share the connection. It sends
    nothing before the first call. Do not use it across fork() unless its target is "local:", and do
    not pickle it: make it in the process that uses it.
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
        max_in_flight: int = 4,
        transport: Transport = "auto",
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        on_unavailable: OnUnavailable = "raise",
        publish: str | None = None,
        record: str | os.PathLike[str] | Record | None = None,
    ) -> None:
        """Prepares a connection.

        Args:
            target: "host:port", "[IPv6]:port", "unix:/path/to/socket", "dns:///name:port", or a
                list such as "ipv4:10.0.0.1:50051,10.0.0.2:50051". "local:" computes in this process
                through libcounterweight, with the same results and errors; "local:?threads=4" sets
                the number of threads, "local:?max_tokens=1000000" limits a batch's positions,
                "local:cuda?device=0" computes on a device. A local client refuses transport and
                on_unavailable, and tls and tokens unless it publishes, ignores retry and
                chunk_bytes, and works in forked children.
            timeout: Deadline of each call in seconds, including connecting and retries; > 0. None,
                and from 1e8 (three years) to infinity: no limit.
            tls: None: plaintext, for loopback and Unix sockets.
            token: Sent with every call to a server that requires tokens (``--tokens``).
            token_file: A file with the token, read again when it changes; instead of ``token``.
            allow_insecure_token: Also send the token to another machine without TLS, where others
                may read it.
            retry: Policy for calls that the server did not admit; retries keep the request_id.
                False: no retries.
            max_in_flight: Largest number of batches that ``submit`` keeps in flight, each with a
                copy of its arrays; >= 1.
            transport: How batches travel. "unary": as one message, whose size the server limits.
                "stream": in chunks, any size. "shared_memory": the server reads them in place, on
                Linux, if target is "unix:..." and the server offers it. "auto": batches below 2 MiB
                as one message, others by the fastest transport of the server. Results and errors do
                not depend on it.
            chunk_bytes: Bytes of a stream's chunks, 1 to 16 MiB; fewer if the server's limit is
                lower.
            on_unavailable: Answer of ``correct`` if no server responds, after the attempts that
                ``retry`` allows (one attempt while the server is known to be away). "raise": it
                raises UnavailableError. "local": libcounterweight computes the same
                numbers in this process; ``backend`` is then "local:cpu", and the server's metrics
                lack the batch. "identity": weights 1, the mask as sent, no metrics, ``backend``
                "identity"; a call with a loss raises. Each call asks the server first.
                ``fallbacks`` counts such answers.
            publish: For a target "local:": a server, "host:port" or "unix:/path/to/socket", that
                gets the sums of each batch and shows them in Prometheus and on its page as if it
                had corrected the batch; a few KB, never an array. tls and tokens are for it. One
                background thread sends; calls never wait for it. The sums of 256 batches wait at
                most, beyond which the oldest are dropped, and ``close`` waits two seconds at most
                for the rest; ``publish_dropped`` counts what was given up. Needs the extra
                [remote].
            record: A folder, or ``Record`` with limits: each batch that ``correct`` answers is
                written there as Parquet, a row per sequence, for ``counterweight audit``:
                log-probs, mask, versions, labels and ids, no text. One background thread writes;
                calls never wait for it, but copy the arrays. ``recorded`` and ``record_dropped``
                count sequences; ``close`` waits ten seconds at most for the rest. Calls with
                ``metrics=False``, which repeat rows, are not recorded. None: nothing is. Needs the
                extra [record].

        Raises:
            TypeError: An argument is of a wrong type; the message names it.
            ValueError: A malformed target, a number out of its range, an unknown transport, a file
                of ``tls`` or ``token_file`` that cannot be read, a token that others could read, or
                an argument that a local client refuses.
            ImportError: grpcio or pyarrow is needed and missing.
            CounterweightError: libcounterweight is needed and cannot be loaded, or has no CUDA.
        """
        refuse_at_exit()
        timeout = read_timeout(timeout)
        max_in_flight = read_count("max_in_flight", max_in_flight, 1)
        self._recorder = open_recorder(record)
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
            from counterweight_rl.transport.connection_sync import Connection

            access = Access(server, tls, token, token_file, allow_insecure_token)
            self._connection = Connection(
                server, timeout, access, retry, transport, chunk_bytes, on_unavailable
            )
        to_record = self._recorder
        call = self._connection.correct
        self._correct = call if to_record is None else to_record.around_sync(call)
        self._background = Background(self._connection, max_in_flight)

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

        Calls in flight and all later ones fail with code CANCELLED. With ``publish`` it sends what
        waits, for two seconds at most; with ``record`` it writes what waits, for ten.
        """
        self._background.close()
        if self._recorder is not None:
            self._recorder.close_sync()

    @calls.takes(calls.ARGUMENTS)
    def correct(self, **call: Unpack[CorrectArguments[ArrayT]]) -> Result[ArrayT]:
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
            replica: Data-parallel replica or worker, or the engine that sampled the batch,
                [A-Za-z0-9_.-]{1,64}; for the server's log, and its page compares their drift.
            policy_version: Version of the policy being trained, >= 0; a gauge of the run in
                Prometheus. Required with versions of tokens.
            step: Optimizer step that the batch is a part of, >= 0. Prometheus and the page then
                show the step, the sums of all its batches of all ranks, not each batch.
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
            partial_sums: True: the result has ``sums``, which those of other parts of the step are
                added to; see ``merge``. A client with ``publish`` does not send them by itself.
            omit_loss: True leaves the method's policy loss out: for the first pass over a step,
                before its counts are known.
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
        return self._correct(call)

    @calls.takes(calls.FIXED_ARGUMENTS)
    def prepare(self, **fixed: Unpack[FixedArguments]) -> PreparedMethod[Result[Any]]:
        """Fixes the method and what else stays the same, for many calls.

        ``client.prepare(method="token_tis", run="a").correct(response_mask=..., ...)`` equals
        ``client.correct`` with all arguments. It sends nothing, and checks what can be checked
        without a batch. Repeated calls of ``correct`` are as fast: clients keep what calls of one
        kind have in common.

        Raises:
            TypeError: An argument is unknown or of a wrong type.
            ValueError: An unknown choice.
            InvalidRequestError: An unknown output.
        """
        return PreparedMethod(self._correct, fixed)

    @calls.takes(calls.ARGUMENTS)
    def submit(self, **call: Unpack[CorrectArguments[ArrayT]]) -> futures.Future[Result[ArrayT]]:
        """Runs ``correct`` in the background and returns a future of its Result.

        Blocks while ``max_in_flight`` batches are in flight. It copies the arrays before it
        returns, so you may reuse them at once with every transport. It does not copy arrays of
        ``empty``, which must not change before the future is done, nor may those in ``out``. The
        future holds all errors, also of wrong arguments. A running future cannot be cancelled;
        ``close`` ends all of them, and returns when they are done. Arguments and errors are those
        of ``correct``.
        """
        calls.check_names("submit", call, calls.ARGUMENTS)
        copied = None if self._recorder is None else self._recorder.copy(call)
        future = self._background.submit(
            lambda: calls.correct(**call), lambda: self._connection.later(call)
        )
        if self._recorder is not None:
            self._recorder.follow(copied, future)
        return future

    def empty(
        self, shape: int | Sequence[int], dtype: Any = np.float32, access: Use = "input"
    ) -> Any:
        """Returns an array in memory that the server can map, so that its bytes need not move.

        Batches whose inputs are such arrays (or contiguous parts of them), and answers written into
        them by ``out``, are neither sent nor copied. The memory is freed with the last view of it,
        and behaves like any other memory. If the server offers no shared memory, or none is
        available, the array is an ordinary one.

        Args:
            shape: Sizes, >= 0.
            dtype: numpy's or torch's; a torch.dtype makes it a torch tensor.
            access: "input": the server reads it. "output": the server writes it, for ``out``.

        Returns:
            A numpy array or torch tensor of undefined content.
        """
        return empty(self._connection.pool_for_arrays(), shape, dtype, access)

    def merge(
        self, parts: PartialSums | Iterable[PartialSums], *, timeout: float | None = None
    ) -> PartialSums:
        """Adds the sums of parts of a step.

        Whatever the partition and order of the same rows, the result is the same but for the number
        of parts.

        Args:
            parts: ``Result.sums`` of calls with one method and the same options, or what an
                all-reduce made of them.
            timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

        Raises:
            InvalidRequestError: The parts are not of one method.
            CounterweightError: The errors of ``correct``.
        """
        return self._connection.run(calls.merge(parts, timeout=timeout))

    def metrics_of(
        self,
        sums: PartialSums | Iterable[PartialSums],
        method: Method,
        *,
        run: str | None = None,
        replica: str | None = None,
        policy_version: int | None = None,
        step: int | None = None,
        timeout: float | None = None,
    ) -> StepTotals:
        """Returns what one call with all rows of a step would have answered, without arrays.

        Args:
            sums: Those of the step, or of its parts.
            method: The method of the calls.
            run: With ``step`` a label, as in ``correct``: a client with ``publish`` sends the sums
                to its server as a part of that step. It publishes no call with ``partial_sums`` by
                itself.
            replica: As ``run``.
            policy_version: As ``run``.
            step: As ``run``; required with these.
            timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

        Raises:
            ValueError: Labels, and the client does not publish.
            InvalidRequestError: The sums are not of this method, or their losses do not add up,
                because each divided by its own counts.
            CounterweightError: The errors of ``correct``.
        """
        call = calls.metrics_of(
            sums,
            method,
            publishes=self._connection.publishes,
            run=run,
            replica=replica,
            policy_version=policy_version,
            step=step,
            timeout=timeout,
        )
        return self._connection.run(call)

    @calls.takes(diagnose_call.ARGUMENTS, of=diagnose_call.ARGUMENTS)
    def diagnose(self, **call: Unpack[DiagnoseArguments[ArrayT]]) -> Diagnosis:
        """Examines one batch for faults of its data, and names each.

        Arrays are those of ``correct``. Faults show in how log-probs differ, so give at least two
        of the three. CUDA tensors are copied to the host. A batch goes to a server in one message.

        Args:
            response_mask: See ``correct``.
            rollout_log_probs: See ``correct``.
            old_log_probs: See ``correct``.
            current_log_probs: See ``correct``.
            advantages: See ``correct``; of every row, so that groups are whole.
            sequence_lengths: See ``correct``.
            group_ids: Group (prompt) of each sequence. None: whether advantages add up to 0 in
                each group is not examined.
            policy_version: See ``correct``.
            policy_versions: See ``correct``; old log-probs that equal the rollout's are an error
                where tokens are stale.
            version_spans: See ``correct``.
            staleness: Instead of the three above: integers >= 0 of the shape of response_mask, or
                one for all tokens.
            audit: Rows that measure the drift between engine and trainer; the Diagnosis then has
                ``audit``, and a server shows the rows of ``run`` in Prometheus; a client "local:"
                publishes none. None: none.
            shadows: Methods, at most 4; the Diagnosis then has what each would do to the batch, in
                ``shadows``.
            run: Label in a server's log.
            request_id: Identifier of this request, at most 128 bytes of printable ASCII. None: the
                client makes one.
            timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

        Raises:
            InvalidRequestError: The arrays cannot be read, or there are fewer than two log-probs.
            CounterweightError: The errors of ``correct``.
        """
        calls.check_names("diagnose", call, diagnose_call.ARGUMENTS, diagnose_call.REQUIRED)
        return self._connection.run(diagnose_call.diagnose(**call))

    def report_step(
        self,
        *,
        run: str,
        step: int,
        tokens: int,
        issued: Receipt | None = None,
        applied: Receipt | None = None,
        skipped_batches: Mapping[str, int] | None = None,
        ratio_all_one: bool = False,
        num_reports: int = 1,
        replica: str | None = None,
        policy_version: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> StepReport:
        """Reports an optimizer step: what its loss used, beside what it had been given.

        A server counts both by run, so that its alerts see a correction that does not run. A client
        "local:" compares the two itself, and reports to the server of ``publish``, if it has one.

        Args:
            run: The run, as in ``correct``.
            step: The optimizer step's number, >= 0.
            tokens: Tokens with response_mask 1 of the batches that this process trained on,
                corrected or not; >= 0.
            issued: Receipt of the weights and masks that this process received: ``applied`` of each
                answer's, added up. None: it received none.
            applied: Receipt of those that its losses were multiplied by. None: no loss ran here.
            skipped_batches: Batches that were trained without a correction, by reason, such as
                {"no_rollout_log_probs": 1}.
            ratio_all_one: Every ratio of current to old log-probs was exactly 1. True in a process
                without tokens, which leaves the question to the others.
            num_reports: Reports that the step has, of all processes that receive or apply weights;
                the last of them is answered with the state. All go to one server: spread over
                several, the step counts as incomplete on each.
            replica: As ``run``.
            policy_version: As ``run``.
            request_id: Identifier of this report; one that was counted before counts no more. None:
                the client makes one.
            timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

        Raises:
            InvalidRequestError: An argument is out of its range.
            CounterweightError: The errors of ``correct``; UNIMPLEMENTED from a server without the
                feature "report_step".
        """
        call = step_report.report_step(
            run=run,
            step=step,
            tokens=tokens,
            issued=issued,
            applied=applied,
            skipped_batches=skipped_batches,
            ratio_all_one=ratio_all_one,
            num_reports=num_reports,
            replica=replica,
            policy_version=policy_version,
            request_id=request_id,
            timeout=timeout,
        )
        return self._connection.run(call)

    def declare_run(
        self,
        method: Method,
        *,
        run: str,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> RunDeclaration:
        """Declares which method a run uses, once, from what the trainer trains with.

        From then on answers to batches of the run that another method corrected have a warning with
        both names, and the server counts them for its alerts. Methods are compared by what they
        compute, not by how they are written. A client "local:" compares the batches that it
        corrects itself, and declares to the server of ``publish``, if it has one. Each of several
        servers needs the declaration, and one that was started again.

        Args:
            method: As in ``correct``.
            run: The run, as in ``correct``. The server keeps its method as long as its series; a
                later declaration replaces it.
            request_id: Identifier of this request. None: the client makes one.
            timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

        Raises:
            InvalidRequestError: The run or the method is wrong, as in ``correct``.
            CounterweightError: The errors of ``correct``; UNIMPLEMENTED from a server without the
                feature "declare_run".
        """
        return self._connection.run(
            declare_run.declare_run(method, run=run, request_id=request_id, timeout=timeout)
        )

    def group_advantages(
        self,
        rewards: ArrayT,
        group_ids: Iterable[int] | Iterable[str] | ArrayT,
        baseline: Baseline,
        *,
        tokens: Iterable[int] | ArrayT | None = None,
        kept_tokens: Iterable[int] | ArrayT | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> GroupAdvantages[ArrayT]:
        """Makes advantages of rewards, by baselines that know which rows were rejected.

        A first ``correct`` without advantages says what is kept, the loss of a second one reads the
        advantages. A rule whose condition is their sign needs some before: those of all rows.
        Rows are those of the whole step; over ranks use ``distributed.Step.group_advantages``.

        Args:
            rewards: [B], of numpy or torch; NaN: the row has no reward, and the advantage 0.
            group_ids: [B], the prompt of each row: integers, or strings.
            baseline: A GroupBaseline, or the name of another system's function, such as
                "verl.grpo".
            tokens: [B], response tokens of each row, or the response mask [B, T]. None: not known.
            kept_tokens: [B], those that rejection rules kept, or the keep mask [B, T]. None: all.
            request_id: Identifier of this request. None: the client makes one.
            timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

        Raises:
            TypeError: An argument is of a wrong type.
            ValueError: ``rewards`` is not [B], or infinite.
            InvalidRequestError: Lengths differ, or a setting is wrong.
            CounterweightError: The errors of ``correct``; UNIMPLEMENTED from a server without the
                feature "group_advantages".
        """
        return self._connection.run(
            group_baseline.group_advantages(
                rewards,
                group_ids,
                baseline,
                tokens=tokens,
                kept_tokens=kept_tokens,
                request_id=request_id,
                timeout=timeout,
            )
        )

    def list_methods(self, *, timeout: float | None = None) -> list[MethodInfo]:
        """Returns every named method, in the table's order.

        Args:
            timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

        Raises:
            CounterweightError: The errors of ``correct``.
        """
        return self._connection.run(calls.list_methods(timeout=timeout))

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Returns the server's identity and limits.

        Args:
            timeout: Seconds, retries included; > 0. None: the client's. Infinity: no limit.

        Raises:
            CounterweightError: The errors of ``correct``.
        """
        info = self._connection.run(calls.server_info(timeout=timeout))
        self._connection.compare_versions(info.version)
        return info

    @property
    def fallbacks(self) -> dict[str, int]:
        """How many answers were given instead of the server's: {"local": 3}, {"identity": 0}."""
        return self._connection.fallbacks

    @property
    def publishes(self) -> bool:
        """Whether the client sends sums to a server: ``publish`` was given."""
        return self._connection.publishes

    @property
    def publish_dropped(self) -> int:
        """How many batches' sums ``publish`` has given up, in this process."""
        return self._connection.publish_dropped

    @property
    def recorded(self) -> int:
        """How many sequences finished files of ``record`` have, in this process."""
        return 0 if self._recorder is None else self._recorder.recorded

    @property
    def record_dropped(self) -> int:
        """How many sequences ``record`` has given up, in this process."""
        return 0 if self._recorder is None else self._recorder.dropped
