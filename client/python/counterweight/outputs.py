"""What is asked for, and the answer as a Result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from counterweight import convert, tensors, wire
from counterweight._gen.counterweight.v1 import tensor_pb2
from counterweight.config import Dialect, Method
from counterweight.errors import Violation, refuse
from counterweight.result import Result, RuleSummary, Timing
from counterweight.tensors import ArrayT

_LOSS = "loss"
_ROLES = {
    tensors.role_name(role): role
    for role in (
        tensor_pb2.TENSOR_ROLE_WEIGHTS,
        tensor_pb2.TENSOR_ROLE_KEEP_MASK,
        tensor_pb2.TENSOR_ROLE_TOKEN_REASONS,
        tensor_pb2.TENSOR_ROLE_SEQUENCE_REASONS,
        tensor_pb2.TENSOR_ROLE_GRADIENT,
    )
}
ARRAYS = tuple(_ROLES)
"""The names of the outputs that are arrays."""
# What the server may answer if nothing is named; which of them follows from the method.
_DEFAULT_ARRAYS = ("weights", "keep_mask", "gradient")


@dataclass(frozen=True)
class Wanted:
    """What a request asks for.

    Attributes:
        roles: Tensors; empty: the server's default.
        compute_loss: The loss, although its gradient is not asked for.
        keep_mask: The caller wants the keep mask.
    """

    roles: Sequence[tensor_pb2.TensorRole]
    compute_loss: bool
    keep_mask: bool = True

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that the Result may have."""
        if not self.roles:
            return _DEFAULT_ARRAYS
        return tuple(tensors.role_name(role) for role in self.roles) if self.keep_mask else ()


def read_outputs(outputs: Iterable[str] | None, method: Method, *, has_loss_inputs: bool) -> Wanted:
    """Checks ``Client.correct``'s argument of that name.

    Args:
        outputs: Names; None: the default.
        method: The method.
        has_loss_inputs: Current log-probs and advantages are there.

    Raises:
        TypeError: It is a single string.
        InvalidRequestError: There is no such output, or none at all.
    """
    if outputs is None:
        return Wanted([], compute_loss=has_loss_inputs and isinstance(method, Dialect))
    if isinstance(outputs, str):
        raise TypeError(f"outputs must be a sequence of names, such as ({outputs!r},)")
    names = list(outputs)
    violations = [
        Violation(f"outputs[{i}]", f"must be one of {', '.join([*_ROLES, _LOSS])}; got {name!r}")
        for i, name in enumerate(names)
        if name not in _ROLES and name != _LOSS
    ]
    if not names:
        violations.append(Violation("outputs", "must name at least one; None asks for the default"))
    if violations:
        raise refuse(violations)
    roles = [_ROLES[name] for name in names if name != _LOSS]
    if not roles:
        # No tensor at all would be the server's default, which is several; this is the smallest.
        return Wanted([tensor_pb2.TENSOR_ROLE_KEEP_MASK], compute_loss=True, keep_mask=False)
    return Wanted(roles, compute_loss=_LOSS in names)


def read_answer(
    answer: bytes,
    batch: tensors.Batch[ArrayT],
    wanted: Wanted,
    destinations: Mapping[str, ArrayT],
) -> Result[ArrayT]:
    """The answer in the caller's kind and shape; some arrays in memory that is there already.

    Raises:
        InvalidRequestError: The method has no output for a destination.
        ValueError: It does not fit the question.
        DecodeError: It is no CorrectResponse.
    """
    response, received = wire.decode_response(answer)
    by_name = {tensors.role_name(tensor.role): tensor for tensor in received}
    if missing := destinations.keys() - by_name:
        # Left as it is, it would be taken for an answer.
        problem = "the method has no such output"
        raise refuse(
            [Violation(f"out[{name!r}]", problem) for name in sorted(missing)], response.request_id
        )
    arrays = {
        name: batch.restore(tensor, destinations.get(name)) for name, tensor in by_name.items()
    }
    if not wanted.keep_mask:
        arrays.pop("keep_mask", None)
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
