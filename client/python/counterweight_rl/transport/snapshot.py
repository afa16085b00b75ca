"""Copies batches for ``Client.submit``, which returns before they are sent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from counterweight_rl.arrays.batch import Batch
from counterweight_rl.arrays.encoding import DeviceTensor
from counterweight_rl.arrays.interop import addresses
from counterweight_rl.arrays.wire import WireTensor
from counterweight_rl.correction import Correction
from counterweight_rl.shared_memory.pool import Pool
from counterweight_rl.shared_memory.region import Access, Region
from counterweight_rl.shared_memory.registry import UnusableError


def snapshot(
    correction: Correction[Any], pool: Pool | None, *, on_device: bool = False
) -> tuple[Correction[Any], Callable[[], None]]:
    """Returns the batch with copied arrays, and a function that frees the copies.

    Arrays in ``pool`` are not copied, since they exist to avoid copies. The copies lie in ``pool``
    too, so that there is only one; without a pool in ordinary memory. CUDA tensors are copied on
    their device if the server can read them there, or if ``on_device``.

    Raises:
        TypeError: Only an array's own library could copy it.
    """
    reads = on_device or (pool is not None and bool(pool.devices))
    correction = replace(correction, batch=_settled(correction.batch, reads))
    copied = [
        tensor
        for tensor in correction.batch.inputs
        if isinstance(tensor, WireTensor) and not (tensor.owned or _is_shared(tensor, pool))
    ]
    sizes = [tensor.data.nbytes for tensor in copied]
    region = _region(pool, sum(_aligned(size) for size in sizes))
    if region is not None:
        memory = region.bytes(0, region.size)
    else:
        memory = np.empty(sum(_aligned(size) for size in sizes), np.uint8).data
    places: dict[int, memoryview] = {}
    offset = 0
    for tensor, size in zip(copied, sizes, strict=True):
        places[id(tensor)] = memory[offset : offset + size]
        # numpy releases the interpreter's lock while it copies.
        np.copyto(np.frombuffer(places[id(tensor)], np.uint8), np.frombuffer(tensor.data, np.uint8))
        offset += _aligned(size)
    tensors = [
        replace(tensor, data=places.get(id(tensor), tensor.data), owned=True)
        if isinstance(tensor, WireTensor)
        else tensor
        for tensor in correction.batch.inputs
    ]

    def release() -> None:
        # The traceback of a stored error refers to the batch, so the copies are released
        # explicitly. A copy with remaining views is freed with the last of them.
        for place in places.values():
            with suppress(BufferError):
                place.release()
        if pool is not None and region is not None:
            pool.give_back(region)

    return replace(correction, batch=replace(correction.batch, inputs=tensors)), release


def _settled(batch: Batch[Any], on_device: bool) -> Batch[Any]:
    """Returns the batch with copied CUDA tensors: on their device, or else on the host."""
    if batch.foreign_stream is not None:
        raise TypeError(
            "submit copies its arrays, and only their own library can copy arrays on a device that "
            "are not torch's; use correct"
        )
    if batch.stream is None:
        return batch
    if not on_device:
        return replace(batch, inputs=list(batch.tensors))
    with batch.on_stream():
        inputs = [
            replace(tensor, flat=tensor.flat.clone(), owned=True)
            if isinstance(tensor, DeviceTensor) and not tensor.owned
            else tensor
            for tensor in batch.inputs
        ]
    batch.stream.synchronize()
    return replace(batch, inputs=inputs)


def _aligned(size: int) -> int:
    return -(-size // 64) * 64


def _is_shared(tensor: WireTensor, pool: Pool | None) -> bool:
    if pool is None:
        return False
    begin, end = addresses(tensor.data)
    return begin < end and pool.find(begin, end - begin, Access.READ) is not None


def _region(pool: Pool | None, num_bytes: int) -> Region | None:
    if pool is None or num_bytes == 0:
        return None
    try:
        return pool.take(Access.READ, num_bytes)
    except UnusableError:
        return None
