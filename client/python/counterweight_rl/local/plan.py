"""A call that the library prepared once, and the answers of its runs."""

from __future__ import annotations

import ctypes
import struct
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterweight_rl.arrays.batch import role_name
from counterweight_rl.correction import Correction, attribute
from counterweight_rl.local import json_form, library
from counterweight_rl.messages import Message
from counterweight_rl.partial_sums import PartialSums
from counterweight_rl.result import Result, RuleSummary, Timing

# cw_batch.
_BATCH = struct.Struct(f"@NqPq{library.MAX_INPUTS}P{library.MAX_OUTPUTS}PPPPdPiiP")
_ABSENT = struct.pack("=Q", library.ABSENT_BITS)
_DOUBLE_BYTES = 8
_NO_INPUTS = (0,) * library.MAX_INPUTS
_NO_OUTPUTS = (0,) * library.MAX_OUTPUTS


@dataclass(frozen=True)
class Pieces:
    """A packed batch, and parts of its rows. All arrays are contiguous.

    Attributes:
        inputs: By argument, of the types that the plan was made with.
        lengths: Positions of each row, int64.
        part_of: The part of each row, int32; -1: none.
        num_parts: How many there are.
    """

    inputs: Mapping[str, Any]
    lengths: Any
    part_of: Any
    num_parts: int


class Plan:
    """A cw_plan. Thread-safe; usable in forked children.

    Attributes:
        inputs: The argument of each input, in their order.
        outputs: The name of each output, in their order.
        wanted: Those that the caller asked for.
        timeout: Seconds; None: no limit.
    """

    def __init__(
        self, functions: Any, handle: Any, correction: Correction[Any], timeout: float | None
    ) -> None:
        """Prepares a call that was answered.

        Raises:
            ValueError: The library refuses it.
        """
        message = json_form.dump(correction.request())
        request = library.Request(
            struct_size=ctypes.sizeof(library.Request),
            format=library.JSON,
            message=library.bytes_of(message),
        )
        self._functions = functions
        self._plan = ctypes.c_void_p()
        if functions.cw_prepare(handle, ctypes.byref(request), ctypes.byref(self._plan)):
            raise ValueError("the library does not prepare this request")
        weakref.finalize(self, functions.cw_discard, self._plan).atexit = False
        signature = functions.cw_signature_of(self._plan).contents
        self.inputs = [role_name(each.role) for each in signature.inputs[: signature.num_inputs]]
        self.outputs = [role_name(each.role) for each in signature.outputs[: signature.num_outputs]]
        self.wanted = self.outputs if correction.requested.keep_mask else []
        self.timeout = timeout
        # A run's numbers, then its sums.
        self._num_numbers, self._num_sums = signature.num_numbers, signature.num_sums
        num_vectors = signature.num_sums + signature.num_maxima
        self.numbers: Any = ctypes.c_double * (self._num_numbers + num_vectors)
        self._metrics = [name.decode() for name in signature.metrics[: signature.num_metrics]]
        self._rules = [name.decode() for name in signature.rules[: signature.num_rules]]
        self._first_metric = signature.num_numbers - signature.num_metrics
        self._timeout_seconds = 0.0 if timeout is None else max(timeout, library.SHORTEST_SECONDS)
        described = self._describe(self.numbers())
        self._fixed = {
            name: attribute(described, name)
            for name in ("numerics_version", "backend", "staleness")
        }
        self._warnings = attribute(described, "warnings")
        self._no_inputs = _NO_INPUTS[len(self.inputs) :]
        self._no_outputs = _NO_OUTPUTS[len(self.outputs) :]

    def run(
        self,
        shape: tuple[int, int, int],
        inputs: list[int],
        outputs: list[int],
        numbers: Any,
        stop: int,
        place: tuple[int, int, int],
    ) -> int:
        """Calls cw_run.

        Args:
            shape: Rows, the address of their lengths or 0, and cw_batch.length.
            inputs: Addresses.
            outputs: Addresses; 0: not wanted.
            numbers: Of the type ``numbers``, for the answer.
            stop: Address of an int32.
            place: The last members of cw_batch, from ``memory`` on.

        Returns:
            The library's code.
        """
        rows, lengths, length = shape
        batch = _BATCH.pack(
            _BATCH.size,
            rows,
            lengths,
            length,
            *inputs,
            *self._no_inputs,
            *outputs,
            *self._no_outputs,
            *self._places(ctypes.addressof(numbers)),
            self._timeout_seconds,
            stop,
            *place,
        )
        code: int = self._functions.cw_run(self._plan, batch)
        return code

    def sum_parts(self, batch: Pieces, stop: int, answer: Any) -> int:
        """Calls cw_sum_parts.

        Args:
            batch: The batch.
            stop: Address of an int32.
            answer: A pointer, which is set.

        Returns:
            The library's code.
        """
        packed = _BATCH.pack(
            _BATCH.size,
            len(batch.lengths),
            batch.lengths.ctypes.data,
            -1,
            *(batch.inputs[name].ctypes.data for name in self.inputs),
            *self._no_inputs,
            *_NO_OUTPUTS,
            *(0, 0, 0),
            self._timeout_seconds,
            stop,
            library.HOST,
            0,
            0,
        )
        parts = library.Parts(
            ctypes.sizeof(library.Parts), batch.part_of.ctypes.data, batch.num_parts
        )
        code: int = self._functions.cw_sum_parts(
            self._plan, packed, ctypes.byref(parts), ctypes.byref(answer)
        )
        return code

    def result(self, numbers: Any, arrays: dict[str, Any], request_id: str | None) -> Result[Any]:
        """Returns the Result of a run; most of it is made when it is read."""
        result: Result[Any] = object.__new__(Result)
        loss: float = numbers[library.LOSS]
        result.__dict__.update(
            self._fixed,
            weights=arrays.get("weights"),
            keep_mask=arrays.get("keep_mask"),
            token_reasons=arrays.get("token_reasons"),
            sequence_reasons=arrays.get("sequence_reasons"),
            gradient=arrays.get("gradient"),
            loss=None if loss != loss and _is_absent(loss) else loss,
            _late=Late(self, numbers),
        )
        if request_id is not None:
            result.__dict__["request_id"] = request_id
        return result

    def read(self, name: str, numbers: Any) -> Any:
        """Returns an attribute of a Result that was not made yet."""
        if name == "sums":
            if not self._num_sums:
                return None
            vectors = np.frombuffer(numbers)[self._num_numbers :]
            return PartialSums(vectors[: self._num_sums], vectors[self._num_sums :])
        if name == "metrics":
            values = numbers[self._first_metric : self._num_numbers]
            return {
                metric: value
                for metric, value in zip(self._metrics, values, strict=True)
                if value == value or not _is_absent(value)
            }
        if name == "rules":
            counts = numbers[library.FIRST_RULE : self._first_metric]
            return tuple(
                RuleSummary(rule, int(tokens), int(sequences))
                for rule, tokens, sequences in zip(
                    self._rules, counts[::2], counts[1::2], strict=True
                )
            )
        if name == "warnings":
            dropped = numbers[library.FIRST_RULE : self._first_metric : 2]
            if not numbers[library.POSITIVE_LOG_PROBS] and not any(dropped):
                return self._warnings
            return attribute(self._describe(numbers), "warnings")
        if name == "non_finite_tokens":
            return int(numbers[library.NON_FINITE_TOKENS])
        if name == "timing":
            decode, compute, encode = numbers[library.DECODE_SECONDS : library.FIRST_RULE]
            return Timing(decode, 0.0, compute, encode)
        return uuid.uuid4().hex  # request_id

    def _places(self, numbers: int) -> tuple[int, int, int]:
        """The addresses of numbers, sums and maxima; 0: not wanted."""
        if not self._num_sums:
            return numbers, 0, 0
        sums = numbers + _DOUBLE_BYTES * self._num_numbers
        return numbers, sums, sums + _DOUBLE_BYTES * self._num_sums

    def _describe(self, numbers: Any) -> Message:
        answer = ctypes.POINTER(library.Answer)()
        if self._functions.cw_describe(self._plan, numbers, library.JSON, ctypes.byref(answer)):
            raise ValueError("the library does not describe a run")
        try:
            return json_form.load(answer.contents.message.copy())
        finally:
            self._functions.cw_free(answer)


class Late:
    """Makes the attributes of a Result that are read late."""

    __slots__ = ("_numbers", "_plan")

    def __init__(self, plan: Plan, numbers: Any) -> None:
        self._plan = plan
        self._numbers = numbers

    def __call__(self, name: str) -> Any:
        """Returns the attribute."""
        return self._plan.read(name, self._numbers)


def _is_absent(number: float) -> bool:
    return struct.pack("=d", number) == _ABSENT
