"""Addresses of tensors on a CUDA device that need no judgement."""

from __future__ import annotations

from typing import Any

from counterweight_rl.arrays import cuda
from counterweight_rl.local.plain_arrays import TorchTensors


class CudaTensors(TorchTensors):
    """torch's own tensors and parameters on one CUDA device.

    They are read, made and converted on the current stream, which is to be the one of ``stream``.
    """

    def __init__(self, device: Any) -> None:
        """Takes the device that all tensors of a call are on."""
        super().__init__()
        self.device = device

    def stream(self, mask: Any) -> Any:
        """Returns the caller's stream, in whose order the tensors are complete."""
        return cuda.current_stream(mask)

    def make(self, name: str, mask: Any, shape: tuple[int, ...]) -> tuple[Any, int, Any]:
        """Returns memory for an output, its address, and what makes the output of it, or None."""
        torch = self._torch
        conversion = None
        if name in ("weights", "gradient"):
            dtype = torch.float32
        elif name != "keep_mask":
            # torch converts no uint16.
            dtype, conversion = torch.int16, _unsigned
        elif mask.dtype in self._mask:
            dtype = mask.dtype
        else:
            dtype, conversion = torch.uint8, lambda staged: staged.to(mask.dtype)
        tensor = cuda.empty(shape, dtype, mask)
        return tensor, tensor.data_ptr(), conversion

    def _is_here(self, tensor: Any) -> bool:
        is_here: bool = cuda.device_of(tensor) == self.device
        return is_here


def _unsigned(staged: Any) -> Any:
    """Returns int16 as what it is as uint16, in int32."""
    return staged.int().bitwise_and_(0xFFFF)
