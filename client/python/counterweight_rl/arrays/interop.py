"""Recognizes arrays and their kinds.

This module never imports torch: an object can only be a torch tensor if its caller has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from counterweight_rl.arrays import cuda
from counterweight_rl.arrays.device_array import DeviceArray, adopt_device_array
from counterweight_rl.arrays.torch_kinds import plain

if TYPE_CHECKING:
    import torch

ArrayT = TypeVar("ArrayT", "npt.NDArray[Any]", "torch.Tensor")
"""numpy arrays or torch tensors; all arrays of one call are of one kind."""

_ON_THE_HOST = (1, 3)  # DLPack's kDLCPU and kDLCUDAHost, which numpy reads


def is_torch(array: Any) -> bool:
    """Returns whether it is a torch tensor."""
    module = sys.modules.get("torch")
    return module is not None and isinstance(array, module.Tensor)


def adopt(name: str, array: Any) -> Any:
    """Returns numpy arrays and torch tensors, others as arrays of their memory.

    A torch tensor that is stored negated is copied. Others are objects on a CUDA device (a
    DeviceArray), with ``__dlpack__`` in host memory (JAX, CuPy's pinned memory, ...) or with the
    buffer protocol (array.array, memoryview, ...).

    Raises:
        TypeError: It is none of these, or has no elements of its own in memory.
    """
    if is_torch(array):
        return plain(name, array)
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a numpy masked array, whose mask would not be read; pass {name}.data, and "
            "a response_mask without what it masks"
        )
    if isinstance(array, np.ndarray):
        return array
    on_device = adopt_device_array(name, array)
    if on_device is not None:
        return on_device
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _from_dlpack(name, array)
    try:
        view = memoryview(array)
    except TypeError:
        raise TypeError(
            f"{name} must be a numpy array or a torch tensor, or have the buffer protocol or "
            f"__dlpack__, not {type(array).__name__}"
        ) from None
    try:
        return np.asarray(view)
    except (TypeError, ValueError) as error:
        kind = type(array).__name__
        raise TypeError(f"{name} is a {kind} that numpy cannot read: {error}") from error


def check_kinds(arrays: Mapping[str, Any], first: str) -> None:
    """Refuses arrays of another kind or device than the one named ``first``.

    Raises:
        TypeError: An array differs.
    """
    reference = arrays[first]
    torch = is_torch(reference)
    for name, array in arrays.items():
        if _kind(array) != _kind(reference):
            raise TypeError(
                f"{name} is {_kind(array)} but {first} is {_kind(reference)}; pass one kind"
            )
        if torch and cuda.device_of(array) != cuda.device_of(reference):
            raise TypeError(
                f"{name} is on {cuda.device_of(array)} but {first} is on "
                f"{cuda.device_of(reference)}; "
                "pass tensors of one device"
            )


def _kind(array: Any) -> str:
    if isinstance(array, DeviceArray):
        return "an array on a device"
    return "a torch tensor" if is_torch(array) else "a numpy array"


def addresses(array: Any) -> tuple[int, int]:
    """Returns the addresses of the first byte and past the last one; the array is contiguous."""
    if isinstance(array, DeviceArray):
        return array.address, array.address + array.num_bytes
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
    except Exception as error:  # of any library
        raise TypeError(f"{name} is a {kind} that numpy cannot read: {error}") from error
