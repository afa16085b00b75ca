"""torch tensors in a GPU's memory, and that memory's handle for other processes.

The driver is called by ctypes, through the library that every process with a CUDA tensor has
loaded. Its name and functions are the same in all versions of CUDA, while a runtime library may
have any name or be linked into torch; and torch's own sharing (``_share_cuda_``) counts its
receivers in files that a server would have to know. The handles are those of the runtime.

Memory that is mapped to reserved addresses (torch's expandable segments) has no handle but a file
descriptor for each of its parts.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

_DRIVER = "libcuda.so.1"
_MAPPING_SIZE, _MAPPING_BASE_ADDR = 18, 19  # CU_POINTER_ATTRIBUTE_...
_POSIX_FILE_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_...
_MOST_PARTS = 253  # the kernel passes no more descriptors in one packet


class Allocation(NamedTuple):
    """An allocation of the driver, or adjacent parts of mapped memory, which contains a tensor.

    Attributes:
        address: Address of the first byte.
        size: Bytes.
        handle: The allocation's unique handle for other processes; empty for parts.
        device: The device's UUID.
        part_size: Bytes of each part; 0: an allocation with a handle.
    """

    address: int
    size: int
    handle: bytes
    device: bytes
    part_size: int = 0

    @property
    def in_parts(self) -> bool:
        """Whether ``descriptors`` take the place of the handle."""
        return self.part_size > 0


class NotExportableError(Exception):
    """The memory has no handle for other processes."""


def is_on_device(array: Any) -> bool:
    """Returns whether it is a tensor in the memory of a CUDA device."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor) and array.device.type == "cuda"


def device_of(tensor: torch.Tensor) -> Any:
    """Returns the tensor's device."""
    return tensor.device


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


def parts_of(tensor: torch.Tensor) -> Allocation:
    """Returns the parts of mapped memory that the tensor touches.

    Raises:
        NotExportableError: The memory is not mapped in parts of one size, or in too many.
    """
    driver = _driver()
    device = driver.device(tensor.device.index or 0)
    address = tensor.data_ptr()
    with device:
        begin, part_size = driver.mapping(address)
        end = begin + part_size
        if not begin <= address < end:
            raise NotExportableError("the driver knows no mapping at the tensor's address")
        while end < address + _spanned_bytes(tensor):
            base, size = driver.mapping(end)
            if base != end:
                raise NotExportableError("the tensor's memory has parts that are not adjacent")
            if size != part_size:
                raise NotExportableError("the tensor's memory has parts of different sizes")
            end += size
            if end - begin > _MOST_PARTS * part_size:
                raise NotExportableError(f"the tensor spans more than {_MOST_PARTS} parts")
    return Allocation(begin, end - begin, b"", device.uuid, part_size)


@contextmanager
def descriptors(allocation: Allocation) -> Iterator[list[int]]:
    """Makes a file descriptor for each part, in the order of addresses; closes them at the end.

    Raises:
        NotExportableError: The memory was made without permission to share it.
    """
    files: list[int] = []
    try:
        if allocation.in_parts:
            driver = _driver()
            end = allocation.address + allocation.size
            with driver.devices[allocation.device]:
                for address in range(allocation.address, end, allocation.part_size):
                    driver.export(address, files)
        yield files
    finally:
        for file in files:
            os.close(file)


def _spanned_bytes(tensor: torch.Tensor) -> int:
    """Returns the bytes from the tensor's first element to the end of its last."""
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())


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
        driver.devices[self.uuid] = self

    def __enter__(self) -> None:
        # A thread has no context before it calls the runtime.
        self._driver.call("cuCtxPushCurrent_v2", self._context)

    def __exit__(self, *exception: object) -> None:
        self._driver.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


class _Driver:
    """The driver's library.

    Attributes:
        devices: The devices of the tensors so far, by UUID.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_DRIVER)
        except OSError as error:
            raise NotExportableError(f"cannot load {_DRIVER}: {error}") from error
        self.devices: dict[bytes, _Device] = {}
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

    def mapping(self, address: int) -> tuple[int, int]:
        """Returns the address and the size of the mapping that contains this address."""
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        for value, attribute in ((base, _MAPPING_BASE_ADDR), (size, _MAPPING_SIZE)):
            pointer = ctypes.c_uint64(address)
            self.call("cuPointerGetAttribute", ctypes.byref(value), attribute, pointer)
        return base.value, size.value

    def export(self, address: int, files: list[int]) -> None:
        """Appends a descriptor of the memory that is mapped at this address."""
        handle, file = ctypes.c_uint64(), ctypes.c_int()
        pointer = ctypes.c_void_p(address)
        self.call("cuMemRetainAllocationHandle", ctypes.byref(handle), pointer)
        try:
            kind, flags = _POSIX_FILE_DESCRIPTOR, ctypes.c_uint64(0)
            self.call("cuMemExportToShareableHandle", ctypes.byref(file), handle, kind, flags)
            files.append(file.value)
        finally:
            # The descriptor keeps the memory, while this reference would never end.
            self.call("cuMemRelease", handle)


@functools.cache
def _driver() -> _Driver:
    return _Driver()
