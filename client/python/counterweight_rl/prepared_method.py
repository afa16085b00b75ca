"""A method with what else stays the same from batch to batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from counterweight_rl import calls, messages
from counterweight_rl.arrays.requested_outputs import read_outputs

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from counterweight_rl.calls import CorrectArguments

AnswerT = TypeVar("AnswerT")
"""A Result, or in asyncio what awaits it."""


class PreparedMethod(Generic[AnswerT]):
    """Corrects batches by one method; made by ``Client.prepare``. Thread-safe like its client."""

    def __init__(
        self, correct: Callable[[Mapping[str, Any]], AnswerT], fixed: Mapping[str, Any]
    ) -> None:
        """Checks what can be checked without a batch.

        Raises:
            TypeError: An argument is unknown or of a wrong type.
            ValueError: An unknown choice.
            InvalidRequestError: An unknown output.
        """
        calls.check_names("prepare", fixed, calls.FIXED_ARGUMENTS)
        messages.method_to_message(fixed["method"])
        read_outputs(fixed.get("outputs"), fixed["method"], has_loss_inputs=False)
        self._correct = correct
        self._fixed = dict(fixed)

    def __repr__(self) -> str:
        """Returns the method."""
        return f"PreparedMethod({self._fixed['method']!r})"

    def correct(self, **call: Unpack[CorrectArguments[Any]]) -> AnswerT:
        """Corrects one batch; the other arguments, the result and errors of ``Client.correct``.

        Raises:
            TypeError: An argument is unknown, or was given to ``prepare`` already.
        """
        given = [name for name in call if name in self._fixed]
        if given:
            raise TypeError(f"{given[0]} was given to prepare(); leave it out here")
        whole = {**self._fixed, **call}
        calls.check_names("correct", whole, calls.ARGUMENTS)
        return self._correct(whole)
