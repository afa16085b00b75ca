"""Where the library writes the outputs of one call: into the arrays that the caller gets."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

from counterweight_rl.arrays.batch import role_name
from counterweight_rl.arrays.interop import addresses
from counterweight_rl.arrays.output_array import OutputArray
from counterweight_rl.arrays.pinned import Transfers
from counterweight_rl.correction import Answer, Correction
from counterweight_rl.local import json_form, library
from counterweight_rl.local.device_outputs import ForeignOutput, TorchOutput, device_output
from counterweight_rl.result import Result


class Placing:
    """The arrays of one answer, made when the library requests them.

    Attributes:
        context: What the library calls ``place`` with.
        failure: What went wrong in Python, where the library cannot see it.
    """

    def __init__(
        self, correction: Correction[Any], inputs: list[tuple[int, int]], *, on_device: bool = False
    ) -> None:
        """``inputs``: addresses of each input's first byte and behind its last one.

        ``on_device``: they lie on a CUDA device, and so will the outputs.
        """
        self._on_device = on_device
        self._correction = correction
        self._inputs = inputs
        self._outputs: dict[str, Any] = {}
        self._transfers = Transfers()
        self.failure: BaseException | None = None
        self.context = next(_numbers)

    def __enter__(self) -> Placing:
        _placings[self.context] = self
        return self

    def __exit__(self, *_: object) -> None:
        del _placings[self.context]

    def place(self, role: int, num_bytes: int) -> int | None:
        """The address for an output; None: the library makes the memory."""
        if self.failure is not None:
            return None
        try:
            name = role_name(role)
            given = self._correction.destinations.get(name)
            output: OutputArray | ForeignOutput | TorchOutput
            if self._on_device:
                output = device_output(name, self._correction.batch, given)
                begin, end = output.place
            else:
                output = OutputArray(name, self._correction.batch, given, self._transfers)
                begin, end = addresses(output.buffer())
            # An array of the caller's may be an input too, which is read while outputs are written.
            if end - begin != num_bytes or any(b < end and begin < e for b, e in self._inputs):
                return None
            self._outputs[name] = output
        except BaseException as error:
            self.failure = error
            return None
        return begin

    def result(self, answer: library.Answer) -> Result[Any]:
        """The Result of an answer; the answer's own memory is not needed any more."""
        response = json_form.load(answer.message.copy())
        tensors = json_form.tensors_of(response)
        read = Answer(self._correction, response, tensors, self._outputs)
        for i, output in enumerate(read.outputs):
            if output.name in self._outputs:
                output.finish()
            else:
                output.fill(memoryview(answer.tensors[i].copy()))
        self._transfers.wait()
        return read.result()


_numbers = itertools.count(1)
_placings: dict[int, Placing] = {}


def _place(context: int, role: int, dtype: int, num_bytes: int) -> int | None:
    del dtype  # follows from the role
    return _placings[context].place(role, num_bytes)


place = library.Place(_place)
"""cw_place: one function for all calls, because ctypes takes long to make one."""

STOP = ctypes.c_int32
"""A call looks at it: anything but 0 ends the call."""
