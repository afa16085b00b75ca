"""torch tensors in a GPU's memory, and that memory's handle for other processes.

The driver is called by ctypes, through the library that every process with a CUDA tensor has
loaded. Its name and functions are the same in all versions of CUDA, while a runtime library may
have any name or be linked into torch; and torch's own sharing (``_share_cuda_``) counts its
receivers in files that a server would have to know. The handles are those of the runtime.
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
    """An allocation of the driver; a tensor may be any part of it.

    Attributes:
        address: Address of the first byte.
        size: Bytes.
        handle: The allocation's unique handle for other processes.
        device: The device's UUID.
    """

    address: int
    size: int
    handle: bytes
    device: bytes


class NotExportableError(Exception):
    """The memory has no handle for other processes."""


def is_on_device(array: Any) -> bool:
    """Returns whether it is a tensor in the memory of a CUDA device."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor) and array.device.type == "cuda"


def current_stream(tensor: torch.Tensor) -> Any:
    """Returns the caller's stream on the tensor's device."""
    return sys.modules["torch"].cuda.current_stream(tensor.device)


@contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    """Runs the work on tensors inside on that stream, in any thread."""
    with sys.modules["torch"].cuda.stream(stream):
        yield


def empty(shape: tuple[int, ...], dtype: Any, like: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of undefined content on ``like``'s device, for the current stream."""
    tensor: torch.Tensor = sys.modules["torch"].empty(shape, dtype=dtype, device=like.device)
    return tensor


def allocation_of(tensor: torch.Tensor) -> Allocation:
    """Returns the allocation that contains the tensor.

    Raises:
        NotExportableError: It is memory of torch's expandable segments, of cudaMallocAsync, or
            other memory for which the driver gives no handle.
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
    """One device; within ``with`` the thread uses its context."""

    def __init__(self, driver: _Driver, index: int) -> None:
        self._driver = driver
        ordinal = ctypes.c_int()
        driver.call("cuDeviceGet", ctypes.byref(ordinal), index)
        uuid = (ctypes.c_char * 16)()
        driver.call("cuDeviceGetUuid_v2", uuid, ordinal)
        self.uuid = bytes(uuid.raw)
        # torch's own context, which lives as long as the process; so does our reference to it.
        self._context = ctypes.c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), ordinal)

    def __enter__(self) -> None:
        # A thread has no context before it calls the runtime.
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
            NotExportableError: The function fails or does not exist.
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
