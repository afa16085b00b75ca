"""Arrays on the fake CUDA runtime of tests/kernels/cuda_on_cpu, in this process."""

from __future__ import annotations

import ctypes
import pathlib
from typing import Any

import numpy as np
from server_process import binary

_TO_DEVICE, _TO_HOST, _ON_DEVICE = 1, 2, 3
_DEVICE = 2  # cudaMemoryTypeDevice
_SET_SEED = "_ZN13counterweight9fake_cuda7SetSeedEm"  # fake_cuda::SetSeed(uint64_t)


def library_file() -> pathlib.Path:
    """The library, beside the server."""
    return binary().parent / "libcounterweight-on-fake-cuda.so"


class DeviceArray:
    """An array of another library, with its own description."""

    def __init__(self, address: int, array: Any, stream: int) -> None:
        self.address, self.shape, self.dtype = address, array.shape, array.dtype
        self.nbytes = array.nbytes
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (address, False),
            "version": 3,
            "stream": stream,
        }


class Device:
    """The runtime, called as other libraries call it."""

    def __init__(self) -> None:
        path = library_file().parent / "tests/kernels/cuda_on_cpu/libcounterweight_fake_cudart.so"
        self._runtime = ctypes.CDLL(str(path))
        self._sent: list[tuple[int, int]] = []
        self._made: list[tuple[str, int]] = []

    def set_seed(self, seed: int) -> None:
        """The order of streams; 0: at once."""
        self._runtime[_SET_SEED](ctypes.c_uint64(seed))

    def stream(self, index: int = 0) -> int:
        """A new stream of a device."""
        stream = ctypes.c_void_p()
        self._call("cudaSetDevice", index)
        self._call("cudaStreamCreateWithFlags", ctypes.byref(stream), 1)
        self._call("cudaSetDevice", 0)
        return int(stream.value or 0)

    def empty(self, shape: tuple[int, ...], dtype: Any, stream: int, index: int = 0) -> DeviceArray:
        """An array of garbage."""
        memory = ctypes.c_void_p()
        like = np.empty(shape, dtype)
        self._call("cudaSetDevice", index)
        self._call("cudaMalloc", ctypes.byref(memory), ctypes.c_size_t(like.nbytes))
        self._call("cudaSetDevice", 0)
        self._made.append(("cudaFree", int(memory.value or 0)))
        return DeviceArray(int(memory.value or 0), like, stream)

    def send(self, array: Any, stream: int, index: int = 0) -> DeviceArray:
        """A copy on the device, complete when the stream reaches it."""
        made = self.empty(array.shape, array.dtype, stream, index)
        staged = self._pinned(array.nbytes)
        ctypes.memmove(staged, array.ctypes.data, array.nbytes)
        self._copy(made.address, staged, array.nbytes, _TO_DEVICE, stream if index == 0 else 1)
        self._sent.append((made.address, array.nbytes))
        return made

    def receive(self, array: DeviceArray, stream: int) -> Any:
        """A numpy array that has the numbers when the stream has reached it."""
        return self.receive_bytes(array.address, array.shape, array.dtype, stream)

    def overwrite(self, stream: int) -> None:
        """The stream writes garbage over what was sent."""
        for address, size in self._sent:
            self.fill(address, size, stream)
        self._sent.clear()

    def copy(self, to: int, source: int, size: int, stream: int) -> None:
        """The stream copies from memory of the device to other memory of it."""
        self._copy(to, source, size, _ON_DEVICE, stream)

    def fill(self, address: int, size: int, stream: int) -> None:
        """The stream writes something, so that the memory counts as written."""
        arguments = ctypes.c_void_p(address), 60, ctypes.c_size_t(size), ctypes.c_void_p(stream)
        self._call("cudaMemsetAsync", *arguments)

    def index_of(self, address: int) -> int | None:
        """The device whose memory it is; None: of the host."""
        found = _Attributes()
        self._call("cudaPointerGetAttributes", ctypes.byref(found), ctypes.c_void_p(address))
        return found.device if found.type == _DEVICE else None

    def synchronize(self, stream: int) -> None:
        """Waits for the stream."""
        self._call("cudaStreamSynchronize", ctypes.c_void_p(stream))

    def free(self) -> None:
        """Frees all arrays: calls of the runtime take longer with each."""
        self._call("cudaDeviceSynchronize")
        for function, address in self._made:
            self._call(function, ctypes.c_void_p(address))
        self._made.clear()
        self._sent.clear()

    def transposed(self, array: DeviceArray) -> DeviceArray:
        """The same memory in the other order."""
        twin = DeviceArray(array.address, np.empty(array.shape, array.dtype), 1)
        size = array.dtype.itemsize
        twin.__cuda_array_interface__["strides"] = (size, size * array.shape[0])
        return twin

    def receive_bytes(self, address: int, shape: tuple[int, ...], dtype: Any, stream: int) -> Any:
        """As ``receive``."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        staged = self._pinned(size)
        self._copy(staged, address, size, _TO_HOST, stream)
        memory = (ctypes.c_char * size).from_address(staged)
        return np.frombuffer(memory, dtype).reshape(shape)

    def _pinned(self, size: int) -> int:
        memory = ctypes.c_void_p()
        self._call("cudaHostAlloc", ctypes.byref(memory), ctypes.c_size_t(size), 1)
        self._made.append(("cudaFreeHost", int(memory.value or 0)))
        return int(memory.value or 0)

    def _copy(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        pointers = ctypes.c_void_p(to), ctypes.c_void_p(source)
        self._call(
            "cudaMemcpyAsync", *pointers, ctypes.c_size_t(size), kind, ctypes.c_void_p(stream)
        )

    def _call(self, function: str, *arguments: Any) -> None:
        error = getattr(self._runtime, function)(*arguments)
        assert error == 0, f"{function}: {error}"


class _Attributes(ctypes.Structure):
    """cudaPointerAttributes."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("pointers", ctypes.c_void_p * 2),
    )


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class DlpackArray:
    """The array for those who read DLPack alone."""

    def __init__(self, array: DeviceArray) -> None:
        code = {"f": 2, "u": 1}[array.dtype.kind]
        self._shape = (ctypes.c_int64 * len(array.shape))(*array.shape)
        self._tensor = _Managed(
            array.address, 2, 0, len(array.shape), code, array.dtype.itemsize * 8, 1, self._shape
        )
        self._name = b"dltensor"

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        assert stream == 1
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self._tensor), self._name, None)
