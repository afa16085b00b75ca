"""Outputs that the library writes on a CUDA device, in the caller's stream."""

from __future__ import annotations

from typing import Any

from counterweight_rl.arrays.batch import Batch
from counterweight_rl.arrays.device_array import DeviceArray
from counterweight_rl.arrays.device_output_array import DeviceOutputArray
from counterweight_rl.arrays.interop import addresses
from counterweight_rl.errors import Violation, refuse


class ForeignOutput:
    """An output in an array of another library than torch, which the caller gave.

    Attributes:
        name: Name of the output in Result.
        array: The caller's array.
        place: Its first byte and the end of it.
    """

    def __init__(self, name: str, given: DeviceArray) -> None:
        """Takes the array."""
        self.name = name
        self.array: Any = given.source
        self.place = (given.address, given.address + given.num_bytes)

    def finish(self) -> None:
        """Nothing is converted."""


class TorchOutput:
    """An output in a torch tensor; what is converted, the stream converts.

    Attributes:
        name: Name of the output in Result.
        array: The tensor.
        place: The first byte that the library writes, and the end.
    """

    def __init__(self, name: str, batch: Batch[Any], given: Any) -> None:
        """Makes the tensor in the caller's stream unless it was given."""
        self._output = DeviceOutputArray(name, batch, given)
        self.name = name
        self.array: Any = self._output.array
        self.place = addresses(self._output.target)

    def finish(self) -> None:
        """Puts the conversion into the stream; the host does not wait."""
        self._output.convert()


def device_output(name: str, batch: Batch[Any], given: Any) -> ForeignOutput | TorchOutput:
    """The place of an output.

    Raises:
        InvalidRequestError: It has to be given and was not.
    """
    if batch.stream is not None:
        return TorchOutput(name, batch, given)
    if given is None:
        problem = "is required: this package makes no arrays on a device but torch's"
        raise refuse([Violation(f"out[{name!r}]", problem)])
    return ForeignOutput(name, given)
