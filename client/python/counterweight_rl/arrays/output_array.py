"""Writes outputs into arrays of the caller's kind."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from counterweight_rl.arrays.batch import OUTPUT_DTYPES, Batch, role_name
from counterweight_rl.arrays.interop import is_torch
from counterweight_rl.arrays.pinned import Transfers
from counterweight_rl.arrays.torch_kinds import flat_bytes
from counterweight_rl.arrays.wire import AnswerTensor


class OutputArray:
    """One output: its array, and the conversion from the wire's bytes.

    Call ``fill``; or write all of ``buffer`` and call ``finish``. Arrays on a device are complete
    after ``transfers.wait()``.

    Attributes:
        name: Name of the output in Result.
        array: The caller's result: a new array, or the one of ``out``.
        num_bytes: The output's size on the wire.
        memory: The array's own bytes if they have the wire's format and need no conversion. Else
            None.
    """

    def __init__(
        self, name: str, batch: Batch[Any], destination: Any, transfers: Transfers
    ) -> None:
        """Creates the array unless the caller gave one; leaves its content unchanged."""
        self.name = name
        self._wire_dtype = OUTPUT_DTYPES[name][1]
        self._shape = batch.output_shape(name)
        self._given = destination is not None
        self._transfers = transfers
        self._staging: npt.NDArray[np.uint8] | None = None
        dtype = batch.output_dtype(name)
        mask: Any = batch.response_mask
        self._torch = is_torch(mask)
        self.array: Any = destination
        if not self._given and self._torch:
            torch = sys.modules["torch"]
            self.array = torch.empty(self._shape, dtype=dtype, device=mask.device)
        elif not self._given:
            self.array = np.empty(self._shape, dtype)
        self.num_bytes = int(np.prod(self._shape)) * self._wire_dtype.itemsize
        self.memory = self._own_bytes()

    def buffer(self) -> memoryview:
        """Returns the destination of the wire's ``num_bytes`` bytes."""
        if self.memory is not None:
            return self.memory
        if self._staging is None:
            if self._torch and self.array.device.type != "cpu":
                host = self._transfers.allocate(self.num_bytes, self.array.device)
                self._staging = host.numpy()
            else:
                self._staging = np.empty(self.num_bytes, np.uint8)
        return self._staging.data

    def finish(self) -> None:
        """Converts the content of ``buffer`` to the array.

        Raises:
            ValueError: A byte of a mask is neither 0 nor 1.
        """
        if self.memory is None:
            self._convert(np.frombuffer(self.buffer(), self._wire_dtype).reshape(self._shape))
            self._staging = None
        else:
            self._check_mask(np.frombuffer(self.memory, self._wire_dtype))
            self._tell_autograd()

    def fill(self, received: memoryview) -> None:
        """Converts the wire's bytes to the array.

        Raises:
            ValueError: The number of bytes does not match the shape, or a mask has other values
                than 0 and 1.
        """
        if received.nbytes != self.num_bytes:
            raise ValueError(f"{self.name} has {received.nbytes} bytes instead of {self.num_bytes}")
        if self.memory is None and not (self._torch and self.array.device.type != "cpu"):
            self._convert(np.frombuffer(received, self._wire_dtype).reshape(self._shape))
            return
        source = np.frombuffer(received, np.uint8)
        np.copyto(np.frombuffer(self.buffer(), np.uint8), source)
        self.finish()

    def _own_bytes(self) -> memoryview | None:
        if self._torch:
            torch = sys.modules["torch"]
            if self.array.device.type != "cpu":
                return None
            wire = (torch.float32,) if self._wire_dtype.kind == "f" else (torch.bool, torch.uint8)
            fits = self._wire_dtype.itemsize != 2 and self.array.dtype in wire
            return flat_bytes(self.array).numpy().data if fits else None
        flat = self.array.reshape(-1)
        if flat.dtype == np.bool_:
            flat = flat.view(np.uint8)
        return flat.view(np.uint8).data if flat.dtype == self._wire_dtype else None

    def _convert(self, received: npt.NDArray[Any]) -> None:
        self._check_mask(received)
        if not self._torch:
            np.copyto(self.array, received, casting="unsafe")
            return
        torch = sys.modules["torch"]
        # torch has neither read-only memory nor conversions of uint16.
        if received.dtype == np.uint16:
            received = received.astype(np.int32)
        elif not received.flags.writeable:
            received = received.copy()
        # An inference-mode tensor can only be written in inference mode, and this may be another
        # thread.
        with torch.inference_mode(self.array.is_inference()):
            self._transfers.to_device(self.array, torch.from_numpy(received))

    def _check_mask(self, received: npt.NDArray[Any]) -> None:
        if self._wire_dtype == np.uint8 and received.size and received.max() > 1:
            raise ValueError(f"{self.name} holds {received.max()}")

    def _tell_autograd(self) -> None:
        """Informs autograd of a write that torch did not make.

        An in-place operation on zero elements marks the write, so that a backward that needs the
        old content raises an error.
        """
        if self._torch and self._given and not self.array.is_inference():
            self.array.view(-1)[:0].zero_()


def make_output_array(
    tensor: AnswerTensor, batch: Batch[Any], destination: Any, transfers: Transfers
) -> OutputArray:
    """Returns the array for an answer's tensor.

    Raises:
        ValueError: An unknown output, or another dtype than its role's.
    """
    name = role_name(tensor.role)
    if OUTPUT_DTYPES.get(name, (None,))[0] != tensor.dtype:
        raise ValueError(f"unexpected output {name} of dtype {tensor.dtype}")
    return OutputArray(name, batch, destination, transfers)
