"""One batch to correct, for any transport, and the arrays of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Generic

from counterweight_rl import calm_bound, messages, partial_sums, translation
from counterweight_rl.arrays.batch import Batch, role_name
from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.arrays.output_array import OutputArray, make_output_array
from counterweight_rl.arrays.pinned import Transfers
from counterweight_rl.arrays.requested_outputs import ARRAYS, RequestedOutputs
from counterweight_rl.arrays.wire import AnswerTensor
from counterweight_rl.errors import CounterweightError, Violation, refuse
from counterweight_rl.result import Result, Timing
from counterweight_rl.status import StatusCode

Progress = Callable[[int, int], object]
"""Called with the bytes sent so far and the total bytes."""


@dataclass(frozen=True)
class Correction(Generic[ArrayT]):
    """One batch and what to do with it.

    Attributes:
        head: The message of the request without its tensors.
        batch: The tensors.
        requested: The outputs.
        destinations: Destination arrays by output name.
        progress: Receives the number of bytes sent.
    """

    head: messages.Message
    batch: Batch[ArrayT]
    requested: RequestedOutputs
    destinations: Mapping[str, ArrayT]
    progress: Progress | None = None

    @property
    def num_bytes(self) -> int:
        """Total bytes of the tensors."""
        return sum(tensor.num_bytes for tensor in self.batch.inputs)

    @property
    def sent(self) -> translation.Sent:
        """The tensors and outputs, which errors name by index."""
        tensors = tuple(role_name(tensor.role) for tensor in self.batch.inputs)
        return translation.Sent(tensors, self.requested.role_names)

    def request(self) -> messages.Message:
        """Returns the message of the request, with tensors without data."""
        tensors = [{"role": each.role, "dtype": each.dtype} for each in self.batch.inputs]
        return {**self.head, "tensors": tensors}

    def report(self, num_bytes: int) -> None:
        """Reports the bytes sent to ``progress``."""
        if self.progress is not None:
            self.progress(num_bytes, self.num_bytes)


class Answer(Generic[ArrayT]):
    """An answer without its arrays.

    Attributes:
        outputs: The destination of each tensor.
    """

    def __init__(
        self,
        correction: Correction[ArrayT],
        response: messages.Message,
        tensors: Sequence[AnswerTensor],
        prepared: Mapping[str, OutputArray] | None = None,
    ) -> None:
        """Reads an answer.

        Args:
            correction: What was asked.
            response: The message of the answer.
            tensors: Its tensors.
            prepared: Existing outputs by name.

        Raises:
            InvalidRequestError: The method lacks the output of a destination.
            CounterweightError: The server does not know a bound of calm steps.
            ValueError: The answer does not match the request.
        """
        calm_bound.check_resolved(correction.head["method"], response)
        self._response = response
        self._requested = correction.requested
        self._batch: Batch[Any] = correction.batch
        names = [role_name(tensor.role) for tensor in tensors]
        if len(set(names)) < len(names):
            raise ValueError(f"an output came twice: {', '.join(names)}")
        if missing := correction.destinations.keys() - set(names):
            # The caller would take its old content for an answer.
            problem = "the method has no such output"
            raise refuse(
                [Violation(f"out[{name!r}]", problem) for name in sorted(missing)],
                response.get("requestId", ""),
            )
        asked = [role_name(role) for role in correction.head["outputs"]]
        if asked and names != asked:
            raise ValueError(f"it has {', '.join(names) or 'no output'}, not {', '.join(asked)}")
        self._transfers = Transfers()
        made = prepared or {}
        self.outputs: list[OutputArray] = [
            made.get(name)
            or make_output_array(
                tensor, correction.batch, correction.destinations.get(name), self._transfers
            )
            for name, tensor in zip(names, tensors, strict=True)
        ]

    def result(self, timing: messages.Message | None = None) -> Result[Any]:
        """Returns the Result of filled outputs; ``timing`` replaces the answer's own."""
        self._transfers.wait()
        batch = self._batch
        arrays = {output.name: batch.as_sent(output.name, output.array) for output in self.outputs}
        if not self._requested.keep_mask:
            arrays.pop("keep_mask", None)
        made: dict[str, Any] = {name: arrays.get(name) for name in ARRAYS}
        made.update((name, attribute(self._response, name)) for name in ATTRIBUTES)
        if timing is not None:
            made["timing"] = messages.from_message(Timing, timing)
        return Result(**made)


ATTRIBUTES = tuple(f.name for f in fields(Result) if f.name not in ARRAYS)
"""The attributes of Result that are no arrays."""


def attribute(response: messages.Message, name: str) -> Any:
    """Returns one of ``ATTRIBUTES`` of an answer."""
    if name == "sums":
        return partial_sums.from_message(response.get(name))
    if name == "metrics":
        return {metric: float(n) for metric, n in sorted(response.get(name, {}).items())}
    read = messages.field(Result, name, response)
    if name == "resolved_bounds":
        sent = translation.Sent()
        return tuple(replace(r, field=translation.argument(r.field, sent)) for r in read)
    if name == "warnings":
        return tuple(translation.warning(text) for text in read)
    if name == "timing" and read is None:
        return messages.from_message(Timing, {})
    return read


@contextmanager
def reading(request_id: str | None) -> Iterator[None]:
    """Converts errors of reading an answer into errors of this package."""
    try:
        yield
    except CounterweightError:
        raise  # one of them is a ValueError
    except ValueError as error:
        raise CounterweightError(
            f"cannot read the server's answer: {error}",
            code=StatusCode.INTERNAL,
            request_id=request_id,
        ) from error
