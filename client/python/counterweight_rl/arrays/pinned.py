"""Copies between a torch device's memory and the host's through pinned memory.

A copy from or to pageable memory goes through a small buffer of the driver, piece by piece, and
blocks its caller. Pinned memory is copied at the speed of the bus, and several copies can be queued
and waited for together. torch caches freed pinned memory (its caching host allocator), so this
module has no pool.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Transfers:
    """Copies of one call between one device and the host, all on the current stream.

    The copies are complete after ``wait``.
    """

    def __init__(self) -> None:
        self._device: Any = None
        self._sources: list[torch.Tensor] = []

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a host tensor itself, and of others a copy that ``wait`` completes."""
        if tensor.device.type == "cpu":
            return tensor
        host = self.allocate(tensor.numel() * tensor.element_size(), tensor.device)
        host = host.view(tensor.dtype).reshape(tensor.shape)
        self.copy(host, tensor)
        return host

    def to_device(self, tensor: torch.Tensor, host: torch.Tensor) -> None:
        """Copies ``host`` into ``tensor``, of the same shape; converts the dtype."""
        self.copy(tensor, host)

    def allocate(self, num_bytes: int, device: torch.device) -> torch.Tensor:
        """Returns uint8 [num_bytes] in host memory that ``device`` copies at full speed."""
        torch = sys.modules["torch"]
        memory: Any = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        return memory

    def copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        """Queues a copy."""
        to.copy_(source, non_blocking=True)
        self._sources.append(source)  # keeps the memory until it was read
        for tensor in (to, source):
            if tensor.device.type != "cpu":
                self._device = tensor.device

    def wait(self) -> None:
        """Waits until all copies are done; returns at once if there are none."""
        device, self._device = self._device, None
        if device is not None:
            synchronize(device)
        self._sources.clear()


def synchronize(device: torch.device) -> None:
    """Waits for the current stream of the device."""
    torch = sys.modules["torch"]
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    elif hasattr(torch, "accelerator"):  # torch 2.6; other devices' streams
        torch.accelerator.current_stream(device).synchronize()
