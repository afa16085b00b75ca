"""Memory on a device that a server can open."""

from __future__ import annotations

from counterweight_rl.arrays.cuda import Allocation
from counterweight_rl.shared_memory.region import Access


class DeviceRegion:
    """An allocation that tensors are parts of. The tensors alone keep it.

    Attributes:
        access: What the server may do.
        allocation: What it opens, as a whole.
        size: Bytes.
        storages: torch's, of tensors that were lent, as ids: once none of them is left, torch may
            give the memory back to the driver.
        calls: Those that use it now.
    """

    def __init__(self, access: Access, allocation: Allocation) -> None:
        """Nothing is asked of the driver."""
        self.access = access
        self.allocation = allocation
        self.size = allocation.size
        self.storages: set[int] = set()
        self.calls = 0

    def is_used(self) -> bool:
        """Whether a call uses it, or a tensor that was lent from it lives."""
        return bool(self.storages) or self.calls > 0
