"""Memory that a server can map."""

from __future__ import annotations

import ctypes
import enum
import mmap
import os
import sys
import weakref
from typing import Any

import numpy as np

try:
    import fcntl

    _SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    SUPPORTED = hasattr(os, "memfd_create")
    """Whether this system supports shared memory."""
except (ImportError, AttributeError):  # not Linux
    SUPPORTED = False


class Access(enum.IntEnum):
    """The server's access to a region; the numbers of the control packets."""

    READ = 1
    WRITE = 2


class Region:
    """A memfd with all its pages, sealed against resizing, and mapped here.

    Attributes:
        access: The server's access.
        size: Bytes, a multiple of the page size.
        address: Address of the first byte in this process.
        fd: The memfd, until ``close``.
    """

    def __init__(self, access: Access, num_bytes: int) -> None:
        """Allocates at least ``num_bytes`` >= 1 zero bytes.

        Raises:
            OSError: No memory or no file descriptor is available.
        """
        self.access = access
        self.size = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.fd = os.memfd_create("counterweight", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._close_fd = weakref.finalize(self, os.close, self.fd)
        # Allocates the pages: the server cannot count pages of a sparse file, which its readers
        # would create.
        os.posix_fallocate(self.fd, 0, self.size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        self._mapping: mmap.mmap | None = mmap.mmap(self.fd, self.size, flags=flags)
        self.address = int(np.frombuffer(self._mapping, np.uint8).ctypes.data)

    def bytes(self, offset: int, length: int) -> memoryview:
        """Returns a writable range."""
        assert self._mapping is not None
        return memoryview(self._mapping)[offset : offset + length]

    def hand_over(self) -> Any:
        """Returns the whole region as a buffer, which then alone keeps the mapping."""
        assert self._mapping is not None
        mapping, self._mapping = self._mapping, None
        # A ctypes object, because the finalized object must be the one that all views of arrays
        # keep alive (numpy shortens chains of arrays), and must die before its addresses can be
        # reused.
        return (ctypes.c_char * self.size).from_buffer(mapping)

    def contains(self, address: int, num_bytes: int) -> bool:
        """Returns whether it contains these bytes."""
        return self.address <= address and address + num_bytes <= self.address + self.size

    def close(self) -> None:
        """Frees the descriptor, and the mapping unless something still refers to it."""
        self._mapping = None
        self.close_descriptor()

    def close_descriptor(self) -> None:
        """Closes the descriptor: the region cannot be registered any more."""
        self._close_fd()


def is_torch_dtype(dtype: Any) -> bool:
    """Returns whether it is a dtype of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(dtype, torch.dtype)
