"""The client."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError

from counterweight import convert, tensors, wire
from counterweight._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight._gen.counterweight.v1 import tensor_pb2
from counterweight._version import __version__
from counterweight.config import Method, NonFinitePolicy
from counterweight.errors import CounterweightError, Violation, from_rpc_error, refuse
from counterweight.info import MethodInfo, ServerInfo
from counterweight.result import Result, RuleSummary, Timing
from counterweight.tensors import ArrayT

T = TypeVar("T")

_SERVICE = "/counterweight.v1.CorrectionService/"
_UNLIMITED = -1  # grpc's word for it; the server's own limits are the ones that hold


@dataclass(frozen=True)
class TlsConfig:
    """How to speak TLS; all in PEM.

    Attributes:
        root_certificates: Authorities to trust. None: the system's, as grpc finds them.
        private_key: The client's key, if the server wants one.
        certificate_chain: The client's certificate, if the server wants one.
    """

    root_certificates: bytes | None = None
    private_key: bytes | None = None
    certificate_chain: bytes | None = None


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
    ) -> None:
        """Prepares a connection.

        Args:
            target: "host:port" or "unix:/path/to/socket".
            timeout: Seconds that each call may take, connecting included; None: no limit.
            tls: None: plaintext, for loopback and Unix sockets.
        """
        options = [
            ("grpc.max_receive_message_length", _UNLIMITED),
            ("grpc.max_send_message_length", _UNLIMITED),
            ("grpc.primary_user_agent", f"counterweight-python/{__version__}"),
        ]
        if tls is None:
            self._channel = grpc.insecure_channel(target, options)
        else:
            if isinstance(tls, TlsConfig):
                tls = grpc.ssl_channel_credentials(
                    tls.root_certificates, tls.private_key, tls.certificate_chain
                )
            self._channel = grpc.secure_channel(target, tls, options)
        self._timeout = timeout
        self._closed = False
        # Bytes in, bytes out: see wire.py.
        self._correct = self._channel.unary_unary(_SERVICE + "Correct")
        self._list_methods = self._channel.unary_unary(
            _SERVICE + "ListMethods",
            request_serializer=service_pb2.ListMethodsRequest.SerializeToString,
            response_deserializer=service_pb2.ListMethodsResponse.FromString,
        )
        self._get_server_info = self._channel.unary_unary(
            _SERVICE + "GetServerInfo",
            request_serializer=service_pb2.GetServerInfoRequest.SerializeToString,
            response_deserializer=service_pb2.GetServerInfoResponse.FromString,
        )

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
        """Closes the connection; calls in flight fail with code CANCELLED. Idempotent."""
        self._closed = True
        self._channel.close()

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
        group_ids: Iterable[int] | None = None,
        timeout: float | None = None,
    ) -> Result[ArrayT]:
        """Corrects one batch.

        Arrays are numpy arrays or torch tensors (CPU or CUDA, one device), all of one kind and
        shape: padded [B, T], or packed [sum of sequence_lengths]. Log-probs and advantages are
        float32, float16, bfloat16 (torch), or float64, which is sent as float32. Contiguous arrays
        of a dtype that the wire carries are read where they lie; others are converted first, and
        CUDA tensors copied to the host. Which log-probs are needed follows from the method; at
        least two.

        Args:
            response_mask: Boolean, integer or floating, each 0 or 1; 1 = the token counts.
            method: A preset's name, Preset, CorrectionConfig or Dialect.
            rollout_log_probs: log mu of the policy that sampled, as the inference engine reported
                it; nats.
            old_log_probs: log pi_old, the trainer's recomputation at the start of the step; nats.
            current_log_probs: log pi_theta at this gradient step; nats.
            ref_log_probs: log pi_ref, for a KL penalty; nats.
            advantages: Advantage of each token, already broadcast.
            sequence_lengths: Positions of each sequence, for packed arrays.
            padded_length: Width that a packed batch would have if padded, read only where a peer's
                formula needs it. None: the longest sequence.
            outputs: Some of "weights", "keep_mask", "token_reasons", "sequence_reasons",
                "gradient". None: the keep mask, and the weights if the method has them.
            run: Training run, [A-Za-z0-9_.-]{1,64}; a label of the drift metrics in Prometheus.
            replica: Data-parallel replica or worker, [A-Za-z0-9_.-]{1,64}; for the server's log.
            policy_version: Version of the policy being trained, >= 0; for the server's log.
            request_id: Name of this request, at most 128 bytes of printable ASCII. Drift metrics
                are published once per request_id, so retry with the same one. None: a new one,
                which results and errors carry.
            non_finite: What to do about a NaN or infinity where response_mask is 1.
            seed: Seed of random choices. None: 0.
            group_ids: Group (prompt) of each sequence, [B] integers. No method uses it yet, and
                the server refuses it by name.
            timeout: Seconds; None: the client's.

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
        head = service_pb2.CorrectRequest(
            request_id=request_id,
            layout=batch.layout,
            method=convert.method_to_proto(method),
            outputs=[] if outputs is None else _output_roles(outputs),
            non_finite_policy=convert.enum_to_proto(
                "non_finite", non_finite, tensor_pb2.NonFinitePolicy.DESCRIPTOR
            ),
            seed=seed,
            group_ids=[] if group_ids is None else tensors.int_list("group_ids", group_ids),
        )
        if run is not None:
            head.labels.run = run
        if replica is not None:
            head.labels.replica = replica
        if policy_version is not None:
            head.labels.policy_version = policy_version
        answer = self._call(
            self._correct, wire.encode_request(head, batch.tensors), timeout, request_id
        )
        try:
            return _to_result(answer, batch)
        except (ValueError, DecodeError) as error:
            raise CounterweightError(
                f"cannot read the server's answer: {error}",
                code=grpc.StatusCode.INTERNAL,
                request_id=request_id,
            ) from error

    def list_methods(self, *, timeout: float | None = None) -> list[MethodInfo]:
        """Every named method, in the table's order.

        Args:
            timeout: Seconds; None: the client's.
        """
        answer = self._call(self._list_methods, service_pb2.ListMethodsRequest(), timeout)
        return [convert.from_proto(method, MethodInfo) for method in answer.methods]

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """The server's identity and limits.

        Args:
            timeout: Seconds; None: the client's.
        """
        answer = self._call(self._get_server_info, service_pb2.GetServerInfoRequest(), timeout)
        return convert.from_proto(answer, ServerInfo)

    def _call(
        self,
        method: Callable[..., Any],
        request: Any,
        timeout: float | None,
        request_id: str | None = None,
    ) -> Any:
        try:
            return method(request, timeout=self._timeout if timeout is None else timeout)
        except grpc.RpcError as error:
            raise from_rpc_error(error, request_id, closed=self._closed) from error


_OUTPUTS = {
    tensors.role_name(role): role
    for role in (
        tensor_pb2.TENSOR_ROLE_WEIGHTS,
        tensor_pb2.TENSOR_ROLE_KEEP_MASK,
        tensor_pb2.TENSOR_ROLE_TOKEN_REASONS,
        tensor_pb2.TENSOR_ROLE_SEQUENCE_REASONS,
        tensor_pb2.TENSOR_ROLE_GRADIENT,
    )
}


def _output_roles(outputs: Iterable[str]) -> list[tensor_pb2.TensorRole]:
    if isinstance(outputs, str):
        raise TypeError(f"outputs must be a sequence of names, such as ({outputs!r},)")
    names = list(outputs)
    violations = [
        Violation(f"outputs[{i}]", f"must be one of {', '.join(_OUTPUTS)}; got {name!r}")
        for i, name in enumerate(names)
        if name not in _OUTPUTS
    ]
    if not names:
        violations.append(Violation("outputs", "must name at least one; None asks for the default"))
    if violations:
        raise refuse(violations)
    return [_OUTPUTS[name] for name in names]


def _to_result(answer: bytes, batch: tensors.Batch[ArrayT]) -> Result[ArrayT]:
    response, received = wire.decode_response(answer)
    arrays = {tensors.role_name(tensor.role): batch.restore(tensor) for tensor in received}
    return Result(
        weights=arrays.get("weights"),
        keep_mask=arrays.get("keep_mask"),
        token_reasons=arrays.get("token_reasons"),
        sequence_reasons=arrays.get("sequence_reasons"),
        loss=response.loss if response.HasField("loss") else None,
        gradient=arrays.get("gradient"),
        metrics=dict(sorted(response.metrics.items())),
        rules=tuple(convert.from_proto(rule, RuleSummary) for rule in response.rules),
        non_finite_tokens=response.non_finite_tokens,
        warnings=tuple(response.warnings),
        request_id=response.request_id,
        numerics_version=response.numerics_version,
        backend=response.backend,
        timing=convert.from_proto(response.timing, Timing),
    )
