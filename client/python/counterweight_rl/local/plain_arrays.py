"""Addresses of arrays that need no judgement: contiguous, on the host, of a plain class.

``NumpyArrays``, ``TorchTensors`` and ``cuda_tensors.CudaTensors`` have the same methods. They
return None for whatever is not plain, which ``arrays.batch`` reads or refuses.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from counterweight_rl.arrays.encoding import MASK, NUMPY_READERS, TORCH_READERS
from counterweight_rl.arrays.torch_kinds import unreadable

_HOST = "cpu"  # where torch.set_default_device may not be
_STAGED = {"token_reasons": np.uint16, "sequence_reasons": np.uint16, "keep_mask": np.uint8}


def _new(shape: tuple[int, ...], dtype: Any) -> tuple[Any, int]:
    """Returns an array and its address, a third of the time of ``array.ctypes.data``."""
    array: Any = np.empty(shape, dtype)
    return array, ctypes.addressof(ctypes.c_char.from_buffer(array)) if array.size else 0


class NumpyArrays:
    """numpy's own arrays, none of a subclass."""

    types = frozenset({np.ndarray})
    device = None

    @staticmethod
    def stream(mask: Any) -> None:
        """There is none: the arrays are complete."""

    @staticmethod
    def copy(name: str, array: Any) -> Any:
        """Returns a copy that later changes of the array do not reach."""
        return array.copy()

    @staticmethod
    def is_direct(name: str, array: Any) -> bool:
        """Whether the library reads this dtype in place."""
        if name == MASK:
            return array.dtype in (np.bool_, np.uint8)
        return array.dtype in (np.dtype("=f4"), np.dtype("=f2"))

    @staticmethod
    def read(name: str, array: Any, direct: bool) -> tuple[Any, int] | None:
        """Returns the array that the library reads, perhaps a copy, and its address."""
        if not direct:
            array = NUMPY_READERS[name](name, array)[1]
        elif not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        return array, array.ctypes.data

    @staticmethod
    def make(name: str, mask: Any, shape: tuple[int, ...]) -> tuple[Any, int, Any]:
        """Returns memory for an output, its address, and what makes the output of it, or None."""
        if name in ("weights", "gradient"):
            return *_new(shape, np.float32), None
        if name != "keep_mask":
            return *_new(shape, np.uint16), None
        if mask.dtype in (np.bool_, np.uint8):
            return *_new(shape, mask.dtype), None
        return *_new(shape, np.uint8), lambda staged: staged.astype(mask.dtype)

    @staticmethod
    def take(name: str, given: Any, mask: Any, shape: tuple[int, ...]) -> int | None:
        """Returns the address of a destination of the caller's."""
        if type(given) is not np.ndarray or given.shape != shape:
            return None
        if name in ("weights", "gradient"):
            fits = given.dtype == np.float32
        elif name == "keep_mask":
            fits = given.dtype == mask.dtype and mask.dtype in (np.bool_, np.uint8)
        else:
            fits = given.dtype == np.uint16
        flags = given.flags
        return given.ctypes.data if fits and flags.c_contiguous and flags.writeable else None

    @staticmethod
    def wrote(given: Any) -> None:
        """Nothing else has to know."""


class TorchTensors:
    """torch's own tensors and parameters in memory of the host.

    Attributes:
        types: Their classes.
        device: The CUDA device of all of them; None: the host.
    """

    device: Any = None

    def __init__(self) -> None:
        """Takes what torch has already imported."""
        torch = sys.modules["torch"]
        self._torch = torch
        self.types = frozenset({torch.Tensor, torch.nn.Parameter})
        self._strided = torch.strided
        functorch = getattr(torch._C, "_functorch", None)
        self._is_wrapped = (
            (lambda _: False) if functorch is None else functorch.is_functorch_wrapped_tensor
        )
        self._real = frozenset({torch.float32, torch.float16, torch.bfloat16})
        self._mask = frozenset({torch.bool, torch.uint8})

    def stream(self, mask: Any) -> Any:
        """Returns the caller's stream, in whose order the tensors are complete; None: they are."""

    def copy(self, name: str, tensor: Any) -> Any:
        """Returns a copy that later changes of the tensor do not reach; None: it is not plain."""
        if not self._is_here(tensor) or unreadable(name, tensor) is not None or tensor.is_nested:
            return None
        return tensor.detach().clone()

    def is_direct(self, name: str, tensor: Any) -> bool:
        """Whether the library reads this dtype in place."""
        return tensor.dtype in (self._mask if name == MASK else self._real)

    def _is_here(self, tensor: Any) -> bool:
        is_here: bool = tensor.is_cpu
        return is_here

    def _is_plain(self, tensor: Any) -> bool:
        return (
            self._is_here(tensor)
            and tensor.layout is self._strided
            and not tensor.is_nested
            and not tensor.is_neg()
            and not self._is_wrapped(tensor)
        )

    def _address(self, tensor: Any) -> int | None:
        """Returns the address of a contiguous tensor; None if its storage is not there."""
        end = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
        if tensor.untyped_storage().nbytes() < end:
            return None
        address: int = tensor.data_ptr()
        return address

    def read(self, name: str, tensor: Any, direct: bool) -> tuple[Any, int] | None:
        """Returns the tensor that the library reads, perhaps a copy, and its address."""
        if not self._is_plain(tensor):
            return None
        if not direct or not tensor.is_contiguous():
            if unreadable(name, tensor) is not None:
                return None
            tensor = TORCH_READERS[name](name, tensor.detach())[1].contiguous()
        address = self._address(tensor)
        return None if address is None else (tensor, address)

    def make(self, name: str, mask: Any, shape: tuple[int, ...]) -> tuple[Any, int, Any]:
        """Returns memory for an output, its address, and what makes the output of it, or None."""
        torch = self._torch
        if name in ("weights", "gradient"):
            tensor = torch.empty(shape, dtype=torch.float32, device=_HOST)
            return tensor, tensor.data_ptr(), None
        if name == "keep_mask" and mask.dtype in self._mask:
            tensor = torch.empty(shape, dtype=mask.dtype, device=_HOST)
            return tensor, tensor.data_ptr(), None
        staged, address = _new(shape, _STAGED[name])
        if name == "keep_mask":
            return staged, address, lambda s: torch.from_numpy(s).to(mask.dtype)
        return staged, address, lambda s: torch.from_numpy(s.astype(np.int32))

    def take(self, name: str, given: Any, mask: Any, shape: tuple[int, ...]) -> int | None:
        """Returns the address of a destination of the caller's."""
        if type(given) not in self.types or given.shape != shape or not self._is_plain(given):
            return None
        if name in ("weights", "gradient"):
            fits = given.dtype == self._torch.float32
        else:
            fits = name == "keep_mask" and given.dtype == mask.dtype and given.dtype in self._mask
        if not fits or given.requires_grad or given.is_inference() or not given.is_contiguous():
            return None
        return self._address(given)

    @staticmethod
    def wrote(given: Any) -> None:
        """Informs autograd of a write that torch did not make, as ``OutputArray`` does."""
        given.view(-1)[:0].zero_()
