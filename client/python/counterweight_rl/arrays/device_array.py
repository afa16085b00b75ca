"""Arrays on a CUDA device of other libraries than torch: CuPy, JAX, Numba and more.

They are known by ``__cuda_array_interface__`` (https://numba.readthedocs.io, "CUDA Array
Interface", version 3) or DLPack (https://dmlc.github.io/dlpack), with address, shape, dtype.
This package neither converts nor makes such arrays: it passes their addresses to the library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterweight_rl.contract.tensors import DType
from counterweight_rl.errors import Violation, refuse

_CUDA = 2  # DLPack's kDLCUDA
_DEFAULT_STREAM = 1  # of both interfaces: the legacy default stream
_MASK_DTYPES = {"|b1": DType.U8, "|u1": DType.U8}
_REAL_DTYPES = {
    "<f4": DType.F32,
    "<f2": DType.F16,
    "bfloat16": DType.BF16,
}
_VERSION_DTYPES = {"<i4": DType.I32}
# DLPack's type codes with bits.
_DLPACK_DTYPES = {
    (2, 32): "<f4",
    (2, 16): "<f2",
    (4, 16): "bfloat16",
    (1, 8): "|u1",
    (6, 8): "|b1",
    (0, 32): "<i4",
    (1, 16): "<u2",
}


@dataclass(frozen=True)
class DeviceArray:
    """A C-contiguous array on a device.

    Attributes:
        source: What the caller passed, which keeps the memory.
        address: Of the first byte; 0 if there is none.
        shape: Its shape.
        typestr: numpy's name of the dtype, or "bfloat16".
        stream: The stream in which it is complete, a cudaStream_t; None: it is complete.
        read_only: Whether it must not be written.
        keeper: What else keeps the memory.
    """

    source: Any
    address: int
    shape: tuple[int, ...]
    typestr: str
    stream: int | None
    read_only: bool
    keeper: Any = field(default=None, repr=False)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """The dtype as numpy has it; of bfloat16 its name."""
        return self.typestr if self.typestr == "bfloat16" else np.dtype(self.typestr)

    @property
    def num_bytes(self) -> int:
        """Its size."""
        size = 2 if self.typestr == "bfloat16" else np.dtype(self.typestr).itemsize
        return int(np.prod(self.shape, dtype=np.int64)) * size


@dataclass(frozen=True)
class ForeignTensor:
    """A DeviceArray as a tensor of a request, for a library that takes addresses.

    Attributes:
        name: The argument.
        role: The proto's number.
        dtype: The proto's number.
        array: Its bytes.
        owned: Never: it is the caller's.
    """

    name: str
    role: int
    dtype: int
    array: DeviceArray
    owned: bool = False

    @property
    def num_bytes(self) -> int:
        """The tensor's size on the wire."""
        return self.array.num_bytes

    def to_host(self, transfers: object = None) -> Any:
        """Refuses: only the array's own library could copy it.

        Raises:
            TypeError: Always.
        """
        del transfers
        kind = type(self.array.source).__name__
        raise TypeError(
            f"{self.name} is a {kind} on a device, which only a target local:cuda takes; pass it "
            "as a torch tensor, or copy it"
        )


def adopt_device_array(name: str, array: Any) -> DeviceArray | None:
    """The array if it lies on a CUDA device; None: it lies elsewhere, or is no array.

    Raises:
        TypeError: It is not C-contiguous, or its own description is not understood.
    """
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_interface(name, array, interface)
    if not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
        return None
    if int(array.__dlpack_device__()[0]) != _CUDA:
        return None
    return _from_dlpack(name, array)


def to_foreign(name: str, role: int, array: DeviceArray, known: str) -> ForeignTensor:
    """The tensor of an argument; ``known`` is "mask", "versions" or "real".

    Raises:
        TypeError: A dtype that the wire does not carry; nothing is converted on a device.
    """
    dtypes = {"mask": _MASK_DTYPES, "versions": _VERSION_DTYPES, "real": _REAL_DTYPES}[known]
    if array.typestr not in dtypes:
        names = " or ".join(name if name == "bfloat16" else str(np.dtype(name)) for name in dtypes)
        raise TypeError(
            f"{name} must be {names} on a device, where nothing is converted, not {array.dtype}"
        )
    return ForeignTensor(name, role, dtypes[array.typestr], array)


def stream_of(arrays: dict[str, Any], first: str) -> int:
    """The stream of a batch: the one that its arrays name, or the default one.

    Raises:
        InvalidRequestError: They name several.
    """
    streams = {n: a.stream for n, a in arrays.items() if a.stream is not None}
    chosen: int = streams.get(first, next(iter(streams.values()), _DEFAULT_STREAM))
    violations = [
        Violation(name, f"names stream {stream}, another array {chosen}; pass arrays of one stream")
        for name, stream in streams.items()
        if stream != chosen
    ]
    if violations:
        raise refuse(violations)
    return chosen


def _from_interface(name: str, array: Any, interface: Any) -> DeviceArray:
    try:
        address, read_only = interface["data"]
        shape = tuple(int(n) for n in interface["shape"])
        typestr = str(interface["typestr"])
        dtype = np.dtype(typestr)
        strides = interface.get("strides")
        stream = interface.get("stream")
    except (KeyError, TypeError, ValueError) as error:
        kind = type(array).__name__
        raise TypeError(
            f"{name} is a {kind} whose __cuda_array_interface__ is not understood: {error}"
        ) from None
    if interface.get("mask") is not None:
        raise TypeError(f"{name} has a mask of its own; pass its data")
    if strides is not None:
        _check_strides(name, shape, [int(s) for s in strides], dtype.itemsize)
    return DeviceArray(array, int(address or 0), shape, typestr, stream, bool(read_only))


def _check_strides(name: str, shape: tuple[int, ...], strides: Sequence[int], size: int) -> None:
    wanted = size
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != wanted and 0 not in shape:
            raise TypeError(f"{name} must be C-contiguous on a device, where nothing is copied")
        wanted *= length


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _from_dlpack(name: str, array: Any) -> DeviceArray:
    # The capsule keeps the memory and frees it, because it is not renamed to "used_dltensor".
    try:
        capsule = array.__dlpack__(stream=_DEFAULT_STREAM)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        kind = type(array).__name__
        raise TypeError(f"{name} is a {kind} that cannot be read: {error}") from error
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(get(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    typestr = _DLPACK_DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if typestr is None:
        kind = type(array).__name__
        raise TypeError(
            f"{name} is a {kind} of a dtype (code {tensor.code}, {tensor.bits} bits) that is no "
            "input's"
        )
    if tensor.strides:
        _check_strides(name, shape, [tensor.strides[i] for i in range(tensor.ndim)], 1)
    address = (tensor.data or 0) + tensor.byte_offset
    return DeviceArray(array, address, shape, typestr, _DEFAULT_STREAM, False, capsule)
