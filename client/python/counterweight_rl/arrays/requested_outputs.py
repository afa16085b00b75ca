"""The outputs that a request selects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from counterweight_rl.arrays.batch import role_name
from counterweight_rl.config import Dialect, Method
from counterweight_rl.contract.tensors import TensorRole
from counterweight_rl.errors import Violation, refuse
from counterweight_rl.suggestions import did_you_mean

_LOSS = "loss"
OUTPUT_ROLES = {
    role_name(role): role
    for role in (
        TensorRole.WEIGHTS,
        TensorRole.KEEP_MASK,
        TensorRole.TOKEN_REASONS,
        TensorRole.SEQUENCE_REASONS,
        TensorRole.GRADIENT,
    )
}
"""The role of each output that is an array."""
ARRAYS = tuple(OUTPUT_ROLES)
"""The names of the outputs that are arrays."""
# Outputs that the server may return by default; the method determines which.
_DEFAULT_ARRAYS = ("weights", "keep_mask", "gradient")


@dataclass(frozen=True)
class RequestedOutputs:
    """The outputs that a request selects.

    Attributes:
        roles: Roles of the tensors; empty: the server's default.
        compute_loss: Whether the loss is selected without its gradient.
        keep_mask: Whether the caller selected the keep mask.
    """

    roles: Sequence[TensorRole]
    compute_loss: bool
    keep_mask: bool = True

    @property
    def role_names(self) -> tuple[str, ...]:
        """The names of ``roles``."""
        return tuple(role_name(role) for role in self.roles)

    @property
    def answered(self) -> tuple[str, ...]:
        """The names of the arrays that the answer may have."""
        return self.role_names or _DEFAULT_ARRAYS

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that the Result may have."""
        return self.answered if self.keep_mask else ()


def read_outputs(
    outputs: Iterable[str] | None, method: Method, *, has_loss_inputs: bool
) -> RequestedOutputs:
    """Checks the argument ``outputs`` of ``Client.correct``.

    Args:
        outputs: Names; None: the default.
        method: The method.
        has_loss_inputs: Whether current log-probs and advantages are given.

    Raises:
        TypeError: It is a single string, or no sequence.
        InvalidRequestError: An unknown output, or an empty selection.
    """
    if outputs is None:
        return RequestedOutputs([], compute_loss=has_loss_inputs and isinstance(method, Dialect))
    if isinstance(outputs, str):
        raise TypeError(f"outputs must be a sequence of names, such as ({outputs!r},)")
    if isinstance(outputs, bytes) or not isinstance(outputs, Iterable):
        raise TypeError(f"outputs must be a sequence of names, not {type(outputs).__name__}")
    names = list(outputs)
    known = [*OUTPUT_ROLES, _LOSS]
    violations = [
        Violation(
            f"outputs[{i}]",
            f"must be one of {', '.join(known)}; got {name!r}{did_you_mean(name, known)}",
        )
        for i, name in enumerate(names)
        if name not in known
    ]
    if not names:
        violations.append(Violation("outputs", "must name at least one; None asks for the default"))
    if violations:
        raise refuse(violations)
    roles = [OUTPUT_ROLES[name] for name in names if name != _LOSS]
    if not roles:
        # An empty list would select the server's default, which is several; this is the smallest.
        return RequestedOutputs([TensorRole.KEEP_MASK], compute_loss=True, keep_mask=False)
    return RequestedOutputs(roles, compute_loss=_LOSS in names)
