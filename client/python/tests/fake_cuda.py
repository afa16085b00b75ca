"""Device memory for torch tensors on a machine without a device.

The tensors are the host's, in memfds that another process opens by handles of the fake CUDA runtime
in tests/kernels/cuda_on_cpu (``Exported`` in its fake_memory.cc): a server on that runtime takes
them for CUDA's.
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

from counterweight_rl.arrays import cuda

UUID = b"fake cuda devic\0"
_EXPORTED = struct.Struct("<16siiQQi4x")
_MAGIC = b"fake cuda ipc 1\0"


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


class FakeCuda:
    """A device that replaces ``counterweight_rl.arrays.cuda``.

    Attributes:
        exportable: Whether the driver gives handles.
        waits: Number of waits for a stream.
        in_stream: Whether ``on_stream`` is active.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exportable = True
        self.waits = 0
        self.in_stream = 0
        self._allocations: dict[int, cuda.Allocation] = {}
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

    def alive(self) -> int:
        """Number of live allocations."""
        return len(self._allocations)

    # The interface of counterweight_rl.arrays.cuda.

    def is_on_device(self, array: Any) -> bool:
        return hasattr(array, "data_ptr") and self._find(array.data_ptr()) is not None

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
