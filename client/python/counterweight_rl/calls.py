"""The calls that the service has: what is sent, and how the answer is read.

The clients differ in how they wait; all else is here, once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc

from counterweight_rl import convert, tensors
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.choices import NonFinitePolicy
from counterweight_rl.config import GlobalCounts, Method
from counterweight_rl.correction import Correction, Progress, reading
from counterweight_rl.destinations import check_destinations
from counterweight_rl.errors import CounterweightError, from_rpc_error
from counterweight_rl.info import MethodInfo, ServerInfo
from counterweight_rl.kinds import ArrayT
from counterweight_rl.outputs import read_outputs
from counterweight_rl.result import Result
from counterweight_rl.words import Sent

T = TypeVar("T")

RPCS = ("Correct", "ListMethods", "GetServerInfo")


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call, ready to be sent, more than once if need be.

    Attributes:
        rpc: One of ``RPCS``.
        request: The message's bytes; empty if there is a correction.
        decode: The answer's bytes to what the caller gets; ValueError or DecodeError if it cannot.
        timeout: Seconds; None: the client's.
        request_id: The request's, if it has one.
        correction: A batch, which may go in other ways than as one message too; its arrays are read
            whenever it is sent.
    """

    rpc: str
    request: bytes
    decode: Callable[[bytes], T]
    timeout: float | None = None
    request_id: str | None = None
    correction: Correction[Any] | None = None

    def failure(self, error: grpc.RpcError, *, closed: bool) -> CounterweightError:
        """The typed form of what grpc raised; ``closed`` if the client was closed meanwhile."""
        sent = Sent() if self.correction is None else self.correction.sent
        return from_rpc_error(error, self.request_id, closed=closed, sent=sent)

    def read(self, answer: bytes) -> T:
        """What the caller gets.

        Raises:
            CounterweightError: The answer cannot be read.
        """
        with reading(self.request_id):
            return self.decode(answer)


def correct(
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
) -> Call[Result[ArrayT]]:
    """Corrects one batch; computes its policy loss and gradient if the method has a loss.

    Arrays are numpy arrays or torch tensors (CPU or CUDA, one device), all of one kind and
    shape: padded [B, T], or packed [sum of sequence_lengths]. What has ``__dlpack__`` and lies in
    host memory, or the buffer protocol, is taken for a numpy array, and so are the results.
    Log-probs and advantages are float32, float16, bfloat16 (torch), or float64, which is sent as
    float32. Contiguous arrays of a dtype that the wire carries are read where they lie; others are
    converted first, and CUDA tensors copied to the host through pinned memory. Which inputs are
    needed follows from the method; at least two log-probs.

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
        group_ids: Group (prompt) of each sequence, [B] integers; for losses that average
            within groups (skyrl's prompt_mean), refused by name elsewhere.
        metrics: False leaves ``metrics`` and ``rules`` of the result empty and publishes no drift
            of this batch; arrays, loss and errors are the same, and come sooner. For batches whose
            drift is known already, such as later epochs over the same rollouts.
        out: Where to write, by the output's name: arrays of the kind, shape, dtype and device that
            the output has in Result, contiguous and writable. They are the Result's arrays then;
            after an error their content is undefined. What is asked for does not change.
        progress: Called with (bytes sent, bytes in all) of the tensors: with 0 before the first,
            with all when the answer is there; again from 0 if the batch is sent again. Streams call
            it after every chunk too, from another thread (asyncio: in the loop), never two at a
            time. What it raises cancels the call and is raised by it.
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
    request_id = uuid.uuid4().hex if request_id is None else request_id
    wanted = read_outputs(
        outputs,
        method,
        has_loss_inputs=current_log_probs is not None and advantages is not None,
    )
    batch = tensors.read_batch(
        {
            "rollout_log_probs": rollout_log_probs,
            "old_log_probs": old_log_probs,
            "current_log_probs": current_log_probs,
            "ref_log_probs": ref_log_probs,
            "advantages": advantages,
        },
        response_mask,
        sequence_lengths,
        padded_length,
    )
    if not isinstance(metrics, bool):
        raise TypeError(f"metrics must be a bool, not {type(metrics).__name__}")
    head = service_pb2.CorrectRequest(
        request_id=request_id,
        layout=batch.layout,
        method=convert.method_to_proto(method),
        outputs=wanted.roles,
        compute_loss=wanted.compute_loss,
        non_finite_policy=convert.enum_to_proto(
            "non_finite", non_finite, tensor_pb2.NonFinitePolicy.DESCRIPTOR
        ),
        seed=seed,
        omit_metrics=not metrics,
        group_ids=[] if group_ids is None else tensors.int_list("group_ids", group_ids),
    )
    if global_counts is not None:
        convert.to_proto("global_counts", global_counts, head.global_counts)
    if run is not None:
        head.labels.run = run
    if replica is not None:
        head.labels.replica = replica
    if policy_version is not None:
        head.labels.policy_version = policy_version
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be callable, not {type(progress).__name__}")
    destinations = check_destinations(out or {}, batch, wanted)
    correction = Correction(head, batch, wanted, destinations, progress)
    return Call("Correct", b"", correction.read, timeout, request_id, correction)


def list_methods(*, timeout: float | None = None) -> Call[list[MethodInfo]]:
    """Every named method, in the table's order.

    Args:
        timeout: Seconds; None: the client's.
    """

    def decode(answer: bytes) -> list[MethodInfo]:
        methods = service_pb2.ListMethodsResponse.FromString(answer).methods
        return [convert.from_proto(method, MethodInfo) for method in methods]

    return Call("ListMethods", b"", decode, timeout)


def server_info(*, timeout: float | None = None) -> Call[ServerInfo]:
    """The server's identity and limits.

    Args:
        timeout: Seconds; None: the client's.
    """

    def decode(answer: bytes) -> ServerInfo:
        info = service_pb2.GetServerInfoResponse.FromString(answer)
        return convert.from_proto(info, ServerInfo)

    return Call("GetServerInfo", b"", decode, timeout)
