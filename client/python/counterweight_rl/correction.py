"""One batch to correct, for any transport, and the arrays of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Generic

from counterweight_rl import messages, translation
from counterweight_rl.arrays import wire
from counterweight_rl.arrays.batch import Batch, role_name
from counterweight_rl.arrays.interop import ArrayT
from counterweight_rl.arrays.output_array import OutputArray, make_output_array
from counterweight_rl.arrays.pinned import Transfers
from counterweight_rl.arrays.requested_outputs import ARRAYS, RequestedOutputs
from counterweight_rl.contract import DecodeError
from counterweight_rl.contract import correction_service_pb2 as pb
from counterweight_rl.errors import CounterweightError, Violation, refuse
from counterweight_rl.result import Result, RuleSummary, Staleness, Timing
from counterweight_rl.status import StatusCode

Progress = Callable[[int, int], object]
"""Called with the bytes sent so far and the total bytes."""


@dataclass(frozen=True)
class Correction(Generic[ArrayT]):
    """One batch and what to do with it.

    Attributes:
        head: The request without its tensors.
        batch: The tensors.
        requested: The outputs.
        destinations: Destination arrays by output name.
        progress: Receives the number of bytes sent.
    """

    head: pb.CorrectRequest
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

    def message(self) -> bytes:
        """Returns the request as one message; copies the tensors."""
        return wire.encode_request(self.head, self.batch.tensors)

    def request(self) -> pb.CorrectRequest:
        """Returns the request with tensors without data."""
        request = pb.CorrectRequest()
        request.CopyFrom(self.head)
        request.tensors.extend(tensor.head() for tensor in self.batch.inputs)
        return request

    def report(self, num_bytes: int) -> None:
        """Reports the bytes sent to ``progress``."""
        if self.progress is not None:
            self.progress(num_bytes, self.num_bytes)

    def read(self, message: bytes) -> Result[ArrayT]:
        """Returns the Result of an answer in one message.

        Raises:
            CounterweightError: The answer is unreadable.
        """
        with reading(self.head.request_id):
            answer = Answer(self, message)
            for output, tensor in zip(answer.outputs, answer.tensors, strict=True):
                output.fill(tensor.data)
            return answer.result()


class Answer(Generic[ArrayT]):
    """An answer without its arrays.

    Attributes:
        tensors: The tensors of the message.
        outputs: The destination of each tensor.
    """

    def __init__(
        self,
        correction: Correction[ArrayT],
        message: bytes | memoryview,
        prepared: Mapping[str, OutputArray] | None = None,
    ) -> None:
        """Reads a CorrectResponse; ``prepared`` holds existing outputs by name.

        Raises:
            InvalidRequestError: The method lacks the output of a destination.
            ValueError: The answer does not match the request.
            DecodeError: The message is not a CorrectResponse.
        """
        self._response, self.tensors = wire.decode_response(message)
        self._requested = correction.requested
        self._batch: Batch[Any] = correction.batch
        names = [role_name(tensor.head.role) for tensor in self.tensors]
        if len(set(names)) < len(names):
            raise ValueError(f"an output came twice: {', '.join(names)}")
        if missing := correction.destinations.keys() - set(names):
            # The caller would take its old content for an answer.
            problem = "the method has no such output"
            raise refuse(
                [Violation(f"out[{name!r}]", problem) for name in sorted(missing)],
                self._response.request_id,
            )
        asked = [role_name(role) for role in correction.head.outputs]
        if asked and names != asked:
            raise ValueError(f"it has {', '.join(names) or 'no output'}, not {', '.join(asked)}")
        self._transfers = Transfers()
        made = prepared or {}
        self.outputs: list[OutputArray] = [
            made.get(name)
            or make_output_array(
                tensor.head, correction.batch, correction.destinations.get(name), self._transfers
            )
            for name, tensor in zip(names, self.tensors, strict=True)
        ]

    def result(self, timing: pb.Timing | None = None) -> Result[Any]:
        """Returns the Result of filled outputs; ``timing`` replaces the answer's own."""
        self._transfers.wait()
        batch = self._batch
        arrays = {output.name: batch.as_sent(output.name, output.array) for output in self.outputs}
        if not self._requested.keep_mask:
            arrays.pop("keep_mask", None)
        made: dict[str, Any] = {name: arrays.get(name) for name in ARRAYS}
        made.update((name, attribute(self._response, name)) for name in ATTRIBUTES)
        if timing is not None:
            made["timing"] = messages.from_proto(timing, Timing)
        return Result(**made)


ATTRIBUTES = tuple(f.name for f in fields(Result) if f.name not in ARRAYS)
"""The attributes of Result that are no arrays."""


def attribute(response: pb.CorrectResponse, name: str) -> Any:
    """Returns one of ``ATTRIBUTES`` of an answer."""
    if name == "loss":
        return response.loss if response.HasField("loss") else None
    if name == "metrics":
        return dict(sorted(response.metrics.items()))
    if name == "rules":
        return tuple(messages.from_proto(rule, RuleSummary) for rule in response.rules)
    if name == "warnings":
        return tuple(translation.warning(text) for text in response.warnings)
    if name == "timing":
        return messages.from_proto(response.timing, Timing)
    if name == "staleness":
        has_it = response.HasField("staleness")
        return messages.from_proto(response.staleness, Staleness) if has_it else None
    return getattr(response, name)


@contextmanager
def reading(request_id: str | None) -> Iterator[None]:
    """Converts errors of reading an answer into errors of this package."""
    try:
        yield
    except CounterweightError:
        raise  # one of them is a ValueError
    except (ValueError, DecodeError) as error:
        raise CounterweightError(
            f"cannot read the server's answer: {error}",
            code=StatusCode.INTERNAL,
            request_id=request_id,
        ) from error
