"""torch tensors in a GPU's memory, and that memory's name for other processes.

The driver is asked through ctypes, by the library that every process with a CUDA tensor has open.
Its name and functions are the same for all versions of CUDA, while a runtime library may have any
name, or be inside of torch; and torch's own way of sharing (``_share_cuda_``) counts its receivers
in files that a server would have to know. The handles are the runtime's.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

_DRIVER = "libcuda.so.1"


class Allocation(NamedTuple):
    """Memory on a device as the driver gave it out; a tensor may be any part of it.

    Attributes:
        address: Of the first byte.
        size: Bytes.
        handle: The allocation's name for other processes: another one for each allocation.
        device: The device's UUID.
    """

    address: int
    size: int
    handle: bytes
    device: bytes


class NotExportableError(Exception):
    """The memory has no name for other processes."""


def is_on_device(array: Any) -> bool:
    """Whether it is a tensor in the memory of a CUDA device."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor) and array.device.type == "cuda"


def current_stream(tensor: torch.Tensor) -> Any:
    """The caller's stream on the tensor's device."""
    return sys.modules["torch"].cuda.current_stream(tensor.device)


@contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    """What is done with tensors inside, is done on that stream, whichever thread this is."""
    with sys.modules["torch"].cuda.stream(stream):
        yield


def empty(shape: tuple[int, ...], dtype: Any, like: torch.Tensor) -> torch.Tensor:
    """A tensor of undefined content on the device of ``like``, for the current stream."""
    tensor: torch.Tensor = sys.modules["torch"].empty(shape, dtype=dtype, device=like.device)
    return tensor


def allocation_of(tensor: torch.Tensor) -> Allocation:
    """What the tensor is a part of.

    Raises:
        NotExportableError: It is memory of torch's expandable segments, of cudaMallocAsync, or of
            something else that the driver gives no handle for.
    """
    driver = _driver()
    device = driver.device(tensor.device.index or 0)
    with device:
        begin, size = ctypes.c_uint64(), ctypes.c_size_t()
        address = ctypes.c_uint64(tensor.data_ptr())
        driver.call("cuMemGetAddressRange_v2", ctypes.byref(begin), ctypes.byref(size), address)
        handle = (ctypes.c_char * 64)()
        driver.call("cuIpcGetMemHandle", handle, begin)
    return Allocation(begin.value, size.value, bytes(handle.raw), device.uuid)


class _Device:
    """One device; inside of ``with`` its context is the thread's."""

    def __init__(self, driver: _Driver, index: int) -> None:
        self._driver = driver
        ordinal = ctypes.c_int()
        driver.call("cuDeviceGet", ctypes.byref(ordinal), index)
        uuid = (ctypes.c_char * 16)()
        driver.call("cuDeviceGetUuid_v2", uuid, ordinal)
        self.uuid = bytes(uuid.raw)
        # torch's own context, which lives as long as the process; so does our share of it.
        self._context = ctypes.c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), ordinal)

    def __enter__(self) -> None:
        # A thread that has not called the runtime yet has none.
        self._driver.call("cuCtxPushCurrent_v2", self._context)

    def __exit__(self, *exception: object) -> None:
        self._driver.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


class _Driver:
    """The driver's library."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_DRIVER)
        except OSError as error:
            raise NotExportableError(f"cannot load {_DRIVER}: {error}") from error
        self.device = functools.cache(functools.partial(_Device, self))

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function.

        Raises:
            NotExportableError: It fails, or is not there.
        """
        try:
            error = getattr(self._library, function)(*arguments)
        except AttributeError:
            raise NotExportableError(f"{_DRIVER} has no {function}") from None
        if error != 0:
            raise NotExportableError(f"{function} failed with CUresult {error}")


@functools.cache
def _driver() -> _Driver:
    return _Driver()
