"""Arrays in shared memory: ``Client.empty``."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from counterweight_rl.shared_memory.pool import Pool
from counterweight_rl.shared_memory.region import Access, is_torch_dtype
from counterweight_rl.shared_memory.registry import UnusableError

Use = Literal["input", "output"]


def empty(pool: Pool | None, shape: int | Sequence[int], dtype: Any, access: Use) -> Any:
    """Implements ``Client.empty``; without a pool or memory, returns an ordinary array.

    Raises:
        TypeError: The shape is not an int or a sequence of ints.
        ValueError: A negative size, or an unknown access.
    """
    if access not in get_args(Use):
        raise ValueError(f"access must be one of {', '.join(get_args(Use))}; got {access!r}")
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if not all(isinstance(size, (int, np.integer)) for size in sizes):
        raise TypeError(f"shape must be an int or a sequence of ints, not {shape!r}")
    if any(size < 0 for size in sizes):
        raise ValueError(f"shape must not be negative; got {shape!r}")
    torch = sys.modules.get("torch")
    of_torch = is_torch_dtype(dtype)
    dtype = dtype if of_torch else np.dtype(dtype)
    num_bytes = math.prod(int(size) for size in sizes) * int(dtype.itemsize)
    if pool is not None and num_bytes > 0:
        try:
            buffer = pool.make_buffer(Access.READ if access == "input" else Access.WRITE, num_bytes)
        except UnusableError:
            pass
        else:
            flat = np.frombuffer(buffer, np.uint8, num_bytes)
            if of_torch and torch is not None:
                return torch.from_numpy(flat).view(dtype).reshape(sizes)
            return flat.view(dtype).reshape(sizes)
    if of_torch and torch is not None:
        return torch.empty(sizes, dtype=dtype)
    return np.empty(sizes, dtype)
