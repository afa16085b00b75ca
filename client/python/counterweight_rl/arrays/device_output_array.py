"""Outputs that the server writes in place, in a CUDA device's memory."""

from __future__ import annotations

import sys
from typing import Any

from counterweight_rl.arrays import cuda
from counterweight_rl.arrays.batch import Batch
from counterweight_rl.arrays.device_array import ForeignTensor
from counterweight_rl.arrays.encoding import DeviceTensor
from counterweight_rl.arrays.interop import addresses
from counterweight_rl.arrays.output_array import OutputArray
from counterweight_rl.arrays.pinned import Transfers
from counterweight_rl.arrays.torch_kinds import flat_bytes


class DeviceOutputArray(OutputArray):
    """One output. All work on its tensors runs on the batch's stream.

    Attributes:
        target: Destination of the wire's bytes, uint8 [num_bytes] on the device: the array's own
            memory if it has the wire's format and holds no input.
    """

    def __init__(self, name: str, batch: Batch[Any], destination: Any) -> None:
        """Creates the tensor unless the caller gave one."""
        with batch.on_stream():
            given = destination is not None
            array = destination
            if not given:
                mask = batch.response_mask
                array = cuda.empty(batch.output_shape(name), batch.output_dtype(name), mask)
            super().__init__(name, batch, array, Transfers())
            self._given = given
            self._batch = batch
            self._in_place = self._fits() and not _is_input(array, batch)
            torch = sys.modules["torch"]
            self.target: Any = (
                flat_bytes(array)
                if self._in_place
                else cuda.empty((self.num_bytes,), torch.uint8, array)
            )

    def finish(self) -> None:
        """Converts the bytes in ``target`` to the array.

        Raises:
            ValueError: A byte of a mask is neither 0 nor 1.
        """
        with self._batch.on_stream():
            if self.name == "keep_mask" and bool((self.target > 1).any()):
                raise ValueError(f"{self.name} holds {int(self.target.max())}")
        self.convert()

    def convert(self) -> None:
        """``finish`` of bytes that are known to be right: in the stream, without a wait."""
        torch = sys.modules["torch"]
        with self._batch.on_stream():
            if self._in_place:
                self._tell_autograd()
                return
            received = self.target
            if self._wire_dtype.kind == "f":
                received = received.view(torch.float32)
            elif self._wire_dtype.itemsize == 2:
                # torch cannot convert uint16.
                received = received.view(torch.int16).to(torch.int32).bitwise_and_(0xFFFF)
            # An inference-mode tensor can only be written in inference mode, and this may be
            # another thread.
            with torch.inference_mode(self.array.is_inference()):
                self.array.copy_(received.view(self.array.shape))

    def fill(self, received: memoryview) -> None:
        """Converts the wire's bytes of the answer to the array.

        Raises:
            ValueError: The number of bytes does not match the shape, or a mask has other values
                than 0 and 1.
        """
        with self._batch.on_stream():
            transfers = Transfers()
            OutputArray(self.name, self._batch, self.array, transfers).fill(received)
            transfers.wait()

    def _fits(self) -> bool:
        torch = sys.modules["torch"]
        if self._wire_dtype.itemsize == 1:
            return self.array.dtype in (torch.bool, torch.uint8)
        return self._wire_dtype.kind == "f" and self.array.dtype == torch.float32


def _is_input(array: Any, batch: Batch[Any]) -> bool:
    """Returns whether an input lies there; a retry would read it after it was written."""
    begin, end = addresses(array)
    others = [
        addresses(tensor.flat if isinstance(tensor, DeviceTensor) else tensor.data)
        for tensor in batch.inputs
        if not isinstance(tensor, ForeignTensor)
    ]
    return any(begin < other_end and other_begin < end for other_begin, other_end in others)
