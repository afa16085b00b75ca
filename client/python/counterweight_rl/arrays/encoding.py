"""Converts the caller's arrays to bytes of the wire; uses their own memory if possible."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from counterweight_rl.arrays import cuda, wire
from counterweight_rl.arrays.device_array import DeviceArray, ForeignTensor, to_foreign
from counterweight_rl.arrays.interop import is_torch
from counterweight_rl.arrays.pinned import Transfers
from counterweight_rl.arrays.torch_kinds import flat_bytes
from counterweight_rl.contract.tensors import DType, TensorRole
from counterweight_rl.errors import Violation, refuse

if TYPE_CHECKING:
    import torch

MASK = "response_mask"
VERSIONS = "policy_versions"
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class DeviceTensor:
    """A tensor in the wire's format in a CUDA device's memory.

    Attributes:
        role: The proto's number.
        dtype: The proto's number.
        flat: Its bytes, uint8 [num_bytes].
        owned: Whether only this package uses them; else they may be the caller's tensor.
    """

    role: int
    dtype: int
    flat: torch.Tensor
    owned: bool = False

    @property
    def num_bytes(self) -> int:
        """The tensor's size on the wire."""
        return int(self.flat.numel())

    def to_host(self, transfers: Transfers) -> wire.WireTensor:
        """Returns a copy on the host, complete after ``transfers.wait()``."""
        array = transfers.to_host(self.flat).numpy()
        return wire.WireTensor(self.role, self.dtype, array.data, owned=True)


Input = wire.WireTensor | DeviceTensor | ForeignTensor
"""An input of a batch."""


def to_wire(name: str, array: Any, transfers: Transfers) -> Input:
    """Returns the tensor of that name, complete after ``transfers.wait()``.

    Raises:
        TypeError: A dtype that the wire does not carry.
        InvalidRequestError: A mask has other values than 0 and 1 and a dtype that is converted.
    """
    role = TensorRole[name.upper()]
    if isinstance(array, DeviceArray):
        known = {MASK: "mask", VERSIONS: "versions"}.get(name, "real")
        return to_foreign(name, role, array, known)
    if is_torch(array):
        read = TORCH_READERS[name]
        dtype, tensor = read(name, array)
        bytes_of = flat_bytes(tensor.contiguous())
        if cuda.is_on_device(array):
            owned = bytes_of.data_ptr() != array.data_ptr()
            return DeviceTensor(role, dtype, bytes_of, owned)
        flat = transfers.to_host(bytes_of).numpy()
        owned = flat.ctypes.data != array.data_ptr()
    else:
        dtype, flat = NUMPY_READERS[name](name, array)
        owned = not np.may_share_memory(flat, array)
    return wire.WireTensor(role, dtype, flat.reshape(-1).view(np.uint8).data, owned)


def _numpy_real(name: str, array: npt.NDArray[Any]) -> tuple[int, npt.NDArray[Any]]:
    # Compares kind and size, because a dtype of the other byte order is not equal to np.float32.
    if array.dtype.kind != "f" or array.dtype.itemsize not in (2, 4, 8):
        raise TypeError(
            f"{name} must be float32, float16 or float64 (sent as float32), not {array.dtype}"
        )
    if array.dtype.itemsize == 2:
        return DType.F16, np.ascontiguousarray(array, "<f2")
    # Numbers beyond float32 become infinity, which the non-finite policy handles without a warning.
    with np.errstate(over="ignore"):
        return DType.F32, np.ascontiguousarray(array, "<f4")


def _numpy_mask(name: str, array: npt.NDArray[Any]) -> tuple[int, npt.NDArray[Any]]:
    if array.dtype == np.bool_ or array.dtype == np.uint8:
        # The server checks that bytes are 0 or 1.
        return DType.U8, np.ascontiguousarray(array).view(np.uint8)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be boolean, integer or floating, not {array.dtype}")
    if not ((array == 0) | (array == 1)).all():
        raise refuse([Violation(name, "must hold only 0 and 1")])
    return DType.U8, np.ascontiguousarray(array, np.uint8)


def _numpy_versions(name: str, array: npt.NDArray[Any]) -> tuple[int, npt.NDArray[Any]]:
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, not {array.dtype}")
    if array.dtype.itemsize > 4 or array.dtype == np.uint32:
        _check_range(name, bool(((array < _INT32.min) | (array > _INT32.max)).any()))
    return DType.I32, np.ascontiguousarray(array, "<i4")


def _check_range(name: str, has_others: bool) -> None:
    if has_others:
        raise refuse([Violation(name, "holds a version that int32 cannot hold")])


def _torch_real(name: str, tensor: torch.Tensor) -> tuple[int, torch.Tensor]:
    torch = sys.modules["torch"]
    dtypes = {
        torch.float32: DType.F32,
        torch.float64: DType.F32,
        torch.float16: DType.F16,
        torch.bfloat16: DType.BF16,
    }
    if tensor.dtype not in dtypes:
        raise TypeError(
            f"{name} must be float32, bfloat16, float16 or float64 (sent as float32), "
            f"not {tensor.dtype}"
        )
    if tensor.dtype == torch.float64:
        tensor = tensor.to(torch.float32)
    return dtypes[tensor.dtype], tensor


def _torch_mask(name: str, tensor: torch.Tensor) -> tuple[int, torch.Tensor]:
    torch = sys.modules["torch"]
    if tensor.is_complex():
        raise TypeError(f"{name} must be boolean, integer or floating, not {tensor.dtype}")
    if tensor.dtype not in (torch.bool, torch.uint8):
        if not bool(((tensor == 0) | (tensor == 1)).all()):
            raise refuse([Violation(name, "must hold only 0 and 1")])
        tensor = tensor.to(torch.uint8)
    return DType.U8, tensor


def _torch_versions(name: str, tensor: torch.Tensor) -> tuple[int, torch.Tensor]:
    torch = sys.modules["torch"]
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, not {tensor.dtype}")
    if tensor.dtype == torch.int64:
        _check_range(name, bool(((tensor < _INT32.min) | (tensor > _INT32.max)).any()))
    return DType.I32, tensor.to(torch.int32)


_REAL = ("rollout_log_probs", "old_log_probs", "current_log_probs", "ref_log_probs", "advantages")
NUMPY_READERS = {
    **dict.fromkeys(_REAL, _numpy_real),
    MASK: _numpy_mask,
    VERSIONS: _numpy_versions,
}
TORCH_READERS = {
    **dict.fromkeys(_REAL, _torch_real),
    MASK: _torch_mask,
    VERSIONS: _torch_versions,
}
"""By argument: what returns the wire's dtype, and the elements in it."""
