"""The C library's free memory, from which messages come."""

from __future__ import annotations

import functools

import numpy as np

LARGE_BYTES = 1 << 20
"""Batches from which page faults are most of a call's time."""
_FREED_BYTES = 16 << 20


@functools.cache
def keep_freed_memory() -> None:
    """Has glibc keep the buffers that calls free, for the next call; once in a process.

    A call's message, gRPC's copy of it and the answer are freed at its end. By default glibc gives
    them back to the system each time, and to take their pages again costs twice the transport:
    1,100 page faults for 256 x 1,024. glibc's bounds follow the largest block that was ever freed,
    so they rise by themselves in processes that free arrays of this size; this frees one, which was
    never touched. At most twice its size stays at the end of the heap. Other C libraries do not
    care.
    """
    np.empty(_FREED_BYTES, np.uint8)
