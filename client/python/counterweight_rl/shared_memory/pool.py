"""The regions of one client."""

from __future__ import annotations

import math
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from counterweight_rl.arrays import cuda
from counterweight_rl.errors import CopyWarning
from counterweight_rl.shared_memory.control import RefusedError
from counterweight_rl.shared_memory.device_region import DeviceRegion
from counterweight_rl.shared_memory.region import Access, Region
from counterweight_rl.shared_memory.registry import AnyRegion, Registry, UnusableError
from counterweight_rl.stack_level import stack_level
from counterweight_rl.status import StatusCode

if TYPE_CHECKING:
    import torch

# Bytes of idle regions kept for later calls: the first touch of memory costs several copies.
_MOST_FREE_BYTES = 512 << 20
_GRAIN = 64 << 10
_MOST_REMEMBERED = 256


class Pool:
    """Regions that calls share, and regions that are arrays of the caller. Thread-safe.

    Attributes:
        devices: UUIDs of the devices whose memory the server opens, as far as known.
    """

    def __init__(
        self,
        path: str,
        max_bytes: int,
        devices: frozenset[bytes] = frozenset(),
        device_parts: bool = False,
    ) -> None:
        """Connects to ``path`` on demand; makes no region above ``max_bytes``; 0: no limit.

        The server opens allocations of ``devices``, and with ``device_parts`` parts of mapped
        memory too.
        """
        self.path = path
        self._offer(devices, device_parts)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # held by no one who waits
        self._registry = Registry(path)
        self._regions: set[Region] = set()
        self._lent: dict[tuple[Access, cuda.Allocation], DeviceRegion] = {}
        self._warned = False
        self._free: list[Region] = []  # the most recently used one is the last
        # Finalizers of arrays run at any time, also while the lock is held; their regions wait
        # here, a device's region with the freed storage.
        self._orphans: deque[tuple[AnyRegion, int]] = deque()
        self._closed = False

    def move_to(
        self,
        path: str,
        max_bytes: int,
        devices: frozenset[bytes] = frozenset(),
        device_parts: bool = False,
    ) -> None:
        """Switches to another server if its socket or what it opens differs."""
        with self._lock:
            if path != self.path:
                self._registry.renew(path)
            if (path, devices, device_parts) != (self.path, *self._offered):
                self._offer(devices, device_parts)
            self.path, self._max_bytes = path, max_bytes

    def take(self, access: Access, num_bytes: int) -> Region:
        """Returns a region of at least that size for one call, which gives it back.

        Raises:
            UnusableError: No memory is available.
        """
        with self._lock:
            self._collect()
            fitting = [
                region
                for region in self._free
                if region.access == access and num_bytes <= region.size <= 2 * num_bytes + _GRAIN
            ]
            if fitting:
                region = min(fitting, key=lambda region: region.size)
                self._free.remove(region)
                return region
        return self._make(access, _rounded(num_bytes))

    def give_back(self, region: Region) -> None:
        """Keeps a region for later calls, within the limit."""
        with self._lock:
            self._free.append(region)
            while self._closed or sum(r.size for r in self._free) > _MOST_FREE_BYTES:
                self._drop(self._free.pop(0))
                if not self._free:
                    break

    def discard(self, region: Region) -> None:
        """Drops a region to which the server may still write."""
        with self._lock:
            self._drop(region)

    def make_buffer(self, access: Access, num_bytes: int) -> Any:
        """Returns a buffer in a region of its own, which is freed with the buffer's last view.

        Raises:
            UnusableError: No memory is available.
        """
        region = self._make(access, num_bytes)
        buffer = region.hand_over()
        weakref.finalize(buffer, self._orphaned, region, 0).atexit = False
        return buffer

    def find(self, address: int, num_bytes: int, access: Access) -> tuple[Region, int] | None:
        """Returns the region with that access that contains these bytes, and their offset."""
        with self._lock:
            self._collect()
            for region in self._regions:
                if region.access == access and region.contains(address, num_bytes):
                    return region, address - region.address
        return None

    def lend(
        self, tensor: torch.Tensor, access: Access, end: float = math.inf
    ) -> tuple[DeviceRegion, int]:
        """Returns the device's region that contains a CUDA tensor, and the tensor's offset.

        The call gives it back by ``let_go``. It stays registered as long as a tensor lent from it
        lives.

        Raises:
            NotExportableError: The driver gives no handle for this memory.
            UnusableError: The driver gives no descriptors, or the server refuses it, or does not
                answer.
            DeadlineError: ``end``, on the monotonic clock, has passed.
        """
        try:
            allocation = cuda.allocation_of(tensor)
        except cuda.NotExportableError:
            if True not in self._kinds:
                raise
            allocation = cuda.parts_of(tensor)
        if allocation.device not in self.devices:
            raise UnusableError("the server does not compute on the tensor's device")
        if allocation in self._refused or allocation.in_parts not in self._kinds:
            raise UnusableError("the server refuses the tensor's allocation")
        storage = tensor.untyped_storage()
        with self._lock:
            self._collect()
            # Addresses name parts well enough: a lent storage touches each part of its region, so
            # that none is mapped anew before the region has ended.
            key = (access, allocation)
            region = self._lent.setdefault(key, DeviceRegion(*key))
            region.calls += 1
            if id(storage) not in region.storages:
                region.storages.add(id(storage))
                died = weakref.finalize(storage, self._orphaned, region, id(storage))
                died.atexit = False
        try:
            self.handle(region, end)
        except BaseException:
            self.let_go([region])
            raise
        return region, tensor.data_ptr() - allocation.address

    def let_go(self, regions: Iterable[DeviceRegion]) -> None:
        """Ends a call's use of lent regions."""
        with self._lock:
            self._collect()
            for region in regions:
                region.calls -= 1
                if not region.is_used():
                    self._drop(region)

    def warn_of_copies(self, why: str) -> None:
        """Warns once that CUDA tensors are copied."""
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            sentence = f"CUDA tensors are copied to the host: {why}"
            warnings.warn(sentence, CopyWarning, stacklevel=stack_level())

    def keep(self, regions: Iterable[DeviceRegion], owners: object) -> None:
        """Keeps ``owners``, the memory of a call without an answer, while the server uses it.

        The server may write there for some time after the call was given up, and torch would give
        the memory to other tensors.
        """
        for region in regions:
            self._registry.keep(region, owners)

    def handle(self, region: AnyRegion, end: float = math.inf) -> bytes:
        """Returns the server's handle of the region; registers it if necessary.

        Raises:
            UnusableError: The server refuses it, or does not answer.
            DeadlineError: ``end``, on the monotonic clock, has passed.
        """
        with self._lock:
            self._collect()
        again = True
        while True:
            try:
                handle = self._registry.handle(region, end)
                break
            except cuda.NotExportableError as error:
                raise UnusableError(str(error)) from error
            except RefusedError as refused:
                # There may be room without the idle regions.
                full = refused.code is StatusCode.RESOURCE_EXHAUSTED
                with self._lock:
                    if isinstance(region, DeviceRegion) and not full:
                        self._remember_refusal(region)
                    if not (again and full and (self._free or self._lent)):
                        raise UnusableError(f"the server refuses memory: {refused}") from refused
                    self._drop_free()
            again = False
        if isinstance(region, DeviceRegion):
            with self._lock:
                self._opened.add(region.allocation.in_parts)
        return handle

    def forget_handles(self) -> None:
        """Disconnects from the server: regions are registered anew on their next use."""
        self._registry.renew()

    def trim(self) -> None:
        """Frees idle regions."""
        with self._lock:
            self._collect()
            self._drop_free()

    def stop(self) -> None:
        """Ends waits for the server, and permits no other. Idempotent."""
        self._registry.stop()

    def close(self) -> None:
        """Frees everything but mappings with live arrays; does not wait. Idempotent."""
        with self._lock:
            self._closed = True
            self._collect()
            self._registry.close()
            for region in self._free:
                self._regions.discard(region)
                region.close()
            self._free.clear()
            for region in self._regions:
                region.close_descriptor()

    def _make(self, access: Access, num_bytes: int) -> Region:
        if self._max_bytes and num_bytes > self._max_bytes:
            raise UnusableError(
                f"{num_bytes} bytes are more than the server maps, {self._max_bytes}"
            )
        if self._closed:
            raise UnusableError("the client is closed", lasting=True)
        try:
            region = Region(access, num_bytes)
        except OSError as error:
            raise UnusableError(f"no memory to share: {error}") from error
        with self._lock:
            self._regions.add(region)
        return region

    def _orphaned(self, region: AnyRegion, storage: int) -> None:
        self._orphans.append((region, storage))
        # Repeats, since another thread may have released the lock without seeing this entry.
        while self._orphans and self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    # All following methods require the lock.

    def _offer(self, devices: frozenset[bytes], device_parts: bool) -> None:
        self._offered = (devices, device_parts)
        self.devices = devices
        # Whether in parts: what the server may open, and what it has opened.
        self._kinds = frozenset((False, True) if device_parts else (False,))
        self._opened: set[bool] = set()
        self._refused: set[cuda.Allocation] = set()

    def _collect(self) -> None:
        while self._orphans:
            region, storage = self._orphans.popleft()
            if isinstance(region, DeviceRegion):
                region.storages.discard(storage)
                if region.is_used():
                    continue
            self._drop(region)

    def _drop(self, region: AnyRegion) -> None:
        self._registry.release(region)
        if isinstance(region, Region):
            self._regions.discard(region)
            region.close()
        elif self._lent.get((region.access, region.allocation)) is region:
            del self._lent[region.access, region.allocation]

    def _drop_free(self) -> None:
        while self._free:
            self._drop(self._free.pop())
        for region in [region for region in self._lent.values() if region.calls == 0]:
            self._drop(region)

    def _remember_refusal(self, region: DeviceRegion) -> None:
        kind = region.allocation.in_parts
        if kind not in self._opened:
            # A server that cannot open the first one, as in another PID namespace, can open none
            # of its kind.
            self._kinds -= {kind}
            if not self._kinds:
                self.devices = frozenset()
            return
        if len(self._refused) >= _MOST_REMEMBERED:
            self._refused.clear()
        self._refused.add(region.allocation)


def _rounded(num_bytes: int) -> int:
    """Rounds up by at most an eighth, so that batches of similar size share regions."""
    step = max(_GRAIN, 1 << max(0, num_bytes.bit_length() - 4))
    return -(-num_bytes // step) * step
