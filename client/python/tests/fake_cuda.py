"""Device memory for torch tensors on a machine without a device.

The tensors are the host's, in memfds that another process opens by handles of the fake CUDA runtime
in tests/kernels/cuda_on_cpu (``Exported`` in its fake_memory.cc): a server on that runtime takes
them for CUDA's. Memory in parts is one memfd for each part, with the name that the runtime's
fake_virtual_memory.cc expects, mapped one after another.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from fake_driver import Driver

from counterweight_rl.arrays import cuda

UUID = b"fake cuda devic\0"
_EXPORTED = struct.Struct("<16siiQQi4x")
_MAGIC = b"fake cuda ipc 1\0"
_MAP_FIXED = 0x10


def allocate(size: int) -> tuple[Any, cuda.Allocation, int]:
    """Returns a buffer of zeros, its handle, and the descriptor that keeps the handle valid."""
    size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    fd = os.memfd_create("fake_cuda", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    memory = (ctypes.c_char * size).from_buffer(mmap.mmap(fd, size))
    handle = _EXPORTED.pack(_MAGIC, os.getpid(), fd, os.fstat(fd).st_ino, size, 0)
    address = ctypes.addressof(memory)
    return memory, cuda.Allocation(address, size, handle.ljust(64, b"\0"), UUID), fd


def open_handle(handle: bytes) -> mmap.mmap:
    """Opens the memory of a handle, as a server does.

    Raises:
        OSError: The handle is unknown.
    """
    magic, process, file, inode, size, _ = _EXPORTED.unpack(handle[: _EXPORTED.size])
    if magic != _MAGIC:
        raise OSError("no handle")
    fd = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_ino != inode:
            raise OSError("the allocation is not there any more")
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)


def map_parts(fds: list[int], part_size: int) -> Any:
    """Returns a buffer with the files' memory, one after another."""
    size = len(fds) * part_size
    begin = _map(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    for i, fd in enumerate(fds):
        map_part(begin + i * part_size, part_size, fd)
    memory = (ctypes.c_char * size).from_address(begin)
    weakref.finalize(memory, _LIBC.munmap, begin, size).atexit = False
    return memory


def map_part(address: int, size: int, fd: int) -> None:
    """Maps a file in place of the memory at the address."""
    _map(address, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, fd)


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_size_t
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def _map(address: int | None, size: int, protection: int, flags: int, fd: int) -> int:
    begin: int = _LIBC.mmap(address, size, protection, flags, fd, 0)
    if begin == ctypes.c_size_t(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    return begin


class Segment:
    """Memory in parts, in which an allocator like torch's places tensors.

    Attributes:
        address: Address of the first part.
    """

    def __init__(self, driver: Driver, parts: int, part_size: int) -> None:
        self._driver, self._part_size = driver, part_size
        files = [self._make_part() for _ in range(parts)]
        self._memory = map_parts(files, part_size)
        self.address = ctypes.addressof(self._memory)
        for part, file in enumerate(files):
            driver.mappings[self.address + part * part_size] = (part_size, file)
        freed = weakref.finalize(self._memory, self._free, driver, self.address, parts, part_size)
        freed.atexit = False

    def put(self, offset: int, array: Any) -> Any:
        """A tensor with an array's numbers and a storage of its own, at so many bytes."""
        import torch

        source = torch.as_tensor(array)
        size = source.numel() * source.element_size()
        memory = torch.from_numpy(np.frombuffer(self._memory, np.uint8, size, offset))
        return memory.view(source.dtype).reshape(source.shape).copy_(source)

    def renew(self, part: int) -> None:
        """Unmaps a part and maps fresh memory there, as an allocator does without tensors in it."""
        address = self.address + part * self._part_size
        file = self._make_part()
        map_part(address, self._part_size, file)
        os.close(self._driver.mappings[address][1])
        self._driver.mappings[address] = (self._part_size, file)

    def _make_part(self) -> int:
        file = os.memfd_create("fake_cuda_part_0", os.MFD_CLOEXEC)
        os.ftruncate(file, self._part_size)
        return file

    @staticmethod
    def _free(driver: Driver, address: int, parts: int, part_size: int) -> None:
        for part in range(parts):
            os.close(driver.mappings.pop(address + part * part_size)[1])


class FakeCuda:
    """A device that replaces ``counterweight_rl.arrays.cuda``.

    Attributes:
        exportable: Whether the driver gives handles.
        driver: The driver, which knows memory in parts only.
        waits: Number of waits for a stream.
        in_stream: Whether ``on_stream`` is active.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exportable = True
        self.waits = 0
        self.in_stream = 0
        self._allocations: dict[int, cuda.Allocation] = {}
        self.driver = Driver(index=0, uuid=UUID)
        with pytest.MonkeyPatch.context() as loading:
            loading.setattr(ctypes, "CDLL", lambda path: self.driver)
            driver = cuda._Driver()
        monkeypatch.setattr(cuda, "_driver", lambda: driver)
        for name in ("is_on_device", "current_stream", "on_stream", "empty", "allocation_of"):
            monkeypatch.setattr(cuda, name, getattr(self, name))

    def put(self, array: Any) -> Any:
        """A tensor on the device with an array's numbers, in an allocation of its own."""
        import torch

        source = torch.as_tensor(array)
        tensor = self.allocate(source.numel() * source.element_size() + 512)[256:]
        tensor = tensor[: source.numel() * source.element_size()]
        tensor = tensor.view(source.dtype).reshape(source.shape)
        return tensor.copy_(source)

    def allocate(self, size: int) -> Any:
        """uint8 [size, rounded up to pages] on the device."""
        import torch

        memory, allocation, fd = allocate(size)
        self._allocations[allocation.address] = allocation
        weakref.finalize(memory, self._free, allocation.address, fd).atexit = False
        return torch.from_numpy(np.frombuffer(memory, np.uint8))

    def segment(self, parts: int, part_size: int = mmap.PAGESIZE) -> Segment:
        """Memory in parts, without a handle."""
        return Segment(self.driver, parts, part_size)

    def alive(self) -> int:
        """Number of live allocations."""
        return len(self._allocations)

    # The interface of counterweight_rl.arrays.cuda.

    def is_on_device(self, array: Any) -> bool:
        if not hasattr(array, "data_ptr"):
            return False
        address = array.data_ptr()
        return self._find(address) is not None or self.driver.mapping_of(address) is not None

    def current_stream(self, tensor: Any) -> FakeCuda:
        assert self.is_on_device(tensor)
        return self

    def synchronize(self) -> None:
        self.waits += 1

    @contextmanager
    def on_stream(self, stream: Any) -> Iterator[None]:
        assert stream is self
        self.in_stream += 1
        yield
        self.in_stream -= 1

    def empty(self, shape: tuple[int, ...], dtype: Any, like: Any) -> Any:
        assert self.is_on_device(like)
        assert self.in_stream > 0
        size = int(np.prod(shape)) * dtype.itemsize
        return self.allocate(size).fill_(0x77)[:size].view(dtype).reshape(shape)

    def allocation_of(self, tensor: Any) -> cuda.Allocation:
        found = self._find(tensor.data_ptr())
        if not self.exportable or found is None:
            raise cuda.NotExportableError("memory without a handle")
        return found

    def _find(self, address: int) -> cuda.Allocation | None:
        for allocation in list(self._allocations.values()):
            if 0 <= address - allocation.address < allocation.size:
                return allocation
        return None

    def _free(self, address: int, fd: int) -> None:
        del self._allocations[address]
        os.close(fd)
