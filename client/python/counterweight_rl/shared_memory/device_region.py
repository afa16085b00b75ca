"""Memory on a device that a server can open."""

from __future__ import annotations

from counterweight_rl.arrays.cuda import Allocation
from counterweight_rl.shared_memory.region import Access


class DeviceRegion:
    """An allocation, or parts of mapped memory, that contains tensors. Only they keep it alive.

    Attributes:
        access: The server's access.
        allocation: The allocation or the parts, which the server opens as a whole.
        size: Bytes.
        storages: Ids of torch's storages of lent tensors; after the last one is freed, torch may
            return the memory to the driver.
        calls: Number of calls that use it.
    """

    def __init__(self, access: Access, allocation: Allocation) -> None:
        """Makes no call of the driver."""
        self.access = access
        self.allocation = allocation
        self.size = allocation.size
        self.storages: set[int] = set()
        self.calls = 0

    def is_used(self) -> bool:
        """Returns whether a call uses it, or a tensor lent from it lives."""
        return bool(self.storages) or self.calls > 0
