"""A library of the CUDA driver for ``counterweight_rl.arrays.cuda``."""

from __future__ import annotations

import ctypes
import os
from typing import Any

BASE, SIZE = 0x7F00_0000_0000, 2 << 20
HANDLE = bytes(range(64))
INVALID_VALUE, INVALID_CONTEXT = 1, 201
_MAPPING_SIZE, _MAPPING_BASE_ADDR = 18, 19
_POSIX_FD = 1


class Driver:
    """A libcuda with one device, which requires its context.

    One allocation has a handle. Mappings have none, but descriptors.

    Attributes:
        calls: The calls, in order.
        errors: CUresults to return, by function.
        spared: How many calls of a function in ``errors`` succeed first.
        contexts: The thread's stack of contexts.
        mappings: Size and descriptor of the mapped memory, by address.
        retained: Addresses of the mappings with handles that are not released.
    """

    def __init__(self, index: int = 3, uuid: bytes = b"uuid of device 3") -> None:
        self.calls: list[str] = []
        self.errors: dict[str, int] = {}
        self.spared: dict[str, int] = {}
        self.contexts: list[int] = []
        self.mappings: dict[int, tuple[int, int]] = {}
        self.retained: list[int] = []
        self._index, self._uuid = index, uuid

    def mapping_of(self, address: int) -> int | None:
        """Returns the address of the mapping that contains this one."""
        for base, (size, _) in list(self.mappings.items()):
            if 0 <= address - base < size:
                return base
        return None

    def __getattr__(self, function: str) -> Any:
        if function == "cuMissing":
            raise AttributeError(function)

        def call(*arguments: Any) -> int:
            self.calls.append(function)
            error = self.errors.get(function, 0)
            if error and self.calls.count(function) > self.spared.get(function, 0):
                return error
            return int(getattr(self, f"_{function}")(*arguments) or 0)

        return call

    def _cuDeviceGet(self, ordinal: Any, index: int) -> None:  # noqa: N802
        ordinal._obj.value = 100 + index

    def _cuDeviceGetUuid_v2(self, uuid: Any, ordinal: Any) -> None:  # noqa: N802
        assert ordinal.value == 100 + self._index
        uuid.raw = self._uuid

    def _cuDevicePrimaryCtxRetain(self, context: Any, ordinal: Any) -> None:  # noqa: N802
        context._obj.value = 1000 + ordinal.value

    def _cuCtxPushCurrent_v2(self, context: Any) -> None:  # noqa: N802
        self.contexts.append(context.value)

    def _cuCtxPopCurrent_v2(self, context: Any) -> None:  # noqa: N802
        context._obj.value = self.contexts.pop()

    def _cuMemGetAddressRange_v2(self, begin: Any, size: Any, address: Any) -> int:  # noqa: N802
        if not self._is_current() or not BASE <= address.value < BASE + SIZE:
            return INVALID_CONTEXT
        begin._obj.value, size._obj.value = BASE, SIZE
        return 0

    def _cuIpcGetMemHandle(self, handle: Any, begin: Any) -> int:  # noqa: N802
        if not self._is_current() or begin.value != BASE:
            return INVALID_CONTEXT
        handle.raw = HANDLE
        return 0

    def _cuPointerGetAttribute(self, value: Any, attribute: int, address: Any) -> int:  # noqa: N802
        assert isinstance(address, ctypes.c_uint64)
        base = self.mapping_of(address.value)
        if not self._is_current() or base is None:
            return INVALID_VALUE
        value._obj.value = {_MAPPING_BASE_ADDR: base, _MAPPING_SIZE: self.mappings[base][0]}[
            attribute
        ]
        return 0

    def _cuMemRetainAllocationHandle(self, handle: Any, address: Any) -> int:  # noqa: N802
        assert isinstance(address, ctypes.c_void_p)
        base = self.mapping_of(address.value or 0)
        if not self._is_current() or base is None:
            return INVALID_VALUE
        self.retained.append(base)
        handle._obj.value = ~base & (1 << 64) - 1  # more than a C int has
        return 0

    def _cuMemExportToShareableHandle(  # noqa: N802
        self, fd: Any, handle: Any, kind: int, flags: Any
    ) -> int:
        assert isinstance(fd._obj, ctypes.c_int)
        assert (kind, flags.value) == (_POSIX_FD, 0)
        base = ~handle.value & (1 << 64) - 1
        if not self._is_current() or base not in self.retained:
            return INVALID_VALUE
        fd._obj.value = os.dup(self.mappings[base][1])
        return 0

    def _cuMemRelease(self, handle: Any) -> int:  # noqa: N802
        if not self._is_current():
            return INVALID_CONTEXT
        self.retained.remove(~handle.value & (1 << 64) - 1)
        return 0

    def _is_current(self) -> bool:
        return self.contexts == [1100 + self._index]
