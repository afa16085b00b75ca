"""What counts as an array, and which kind of array it is.

torch is never imported here: an object can only be a torch tensor if its caller already has.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

ArrayT = TypeVar("ArrayT", "npt.NDArray[Any]", "torch.Tensor")
"""numpy arrays or torch tensors; one call's are all of one kind."""

_ON_THE_HOST = (1, 3)  # DLPack's kDLCPU and kDLCUDAHost, which numpy reads


def is_torch(array: Any) -> bool:
    """Whether it is a torch tensor."""
    module = sys.modules.get("torch")
    return module is not None and isinstance(array, module.Tensor)


def adopt(name: str, array: Any) -> Any:
    """Leaves numpy arrays and torch tensors alone; others become numpy arrays of the same memory.

    Others are what has ``__dlpack__`` and lies in host memory (JAX, CuPy's pinned memory, ...), and
    what has the buffer protocol (array.array, memoryview, ...).

    Raises:
        TypeError: It is nothing of these.
    """
    if is_torch(array) or isinstance(array, np.ndarray):
        return array
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _from_dlpack(name, array)
    try:
        view = memoryview(array)
    except TypeError:
        raise TypeError(
            f"{name} must be a numpy array or a torch tensor, or have the buffer protocol or "
            f"__dlpack__, not {type(array).__name__}"
        ) from None
    return np.asarray(view)


def check_kinds(arrays: Mapping[str, Any], first: str) -> None:
    """Refuses arrays that are not of the kind, or not on the device, of the one named ``first``.

    Raises:
        TypeError: There is one.
    """
    reference = arrays[first]
    torch = is_torch(reference)
    for name, array in arrays.items():
        if is_torch(array) != torch:
            kinds = ("a numpy array", "a torch tensor")
            raise TypeError(
                f"{name} is {kinds[not torch]} but {first} is {kinds[torch]}; pass one kind"
            )
        if torch and array.device != reference.device:
            raise TypeError(
                f"{name} is on {array.device} but {first} is on {reference.device}; "
                "pass tensors of one device"
            )


def addresses(array: Any) -> tuple[int, int]:
    """Of the first byte and behind the last one of a contiguous array or a buffer."""
    if is_torch(array):
        return array.data_ptr(), array.data_ptr() + array.numel() * array.element_size()
    if isinstance(array, memoryview):
        array = np.frombuffer(array, np.uint8)
    return array.ctypes.data, array.ctypes.data + array.nbytes


def _from_dlpack(name: str, array: Any) -> npt.NDArray[Any]:
    kind = type(array).__name__
    if array.__dlpack_device__()[0] not in _ON_THE_HOST:
        raise TypeError(f"{name} is a {kind} on a device; pass it as a torch tensor, or copy it")
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {kind} that numpy cannot read: {error}") from error
