"""Calls of the CUDA driver, with a fake library."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from counterweight_rl.arrays import cuda

BASE, SIZE = 0x7F00_0000_0000, 2 << 20
HANDLE = bytes(range(64))
INVALID_CONTEXT = 201


class Driver:
    """A libcuda with one allocation on device 3, which requires its context.

    Attributes:
        calls: The calls, in order.
        errors: CUresults to return, by function.
    """

    def __init__(self, path: str) -> None:
        assert path == "libcuda.so.1"
        self.calls: list[str] = []
        self.errors: dict[str, int] = {}
        self.contexts: list[int] = []

    def __getattr__(self, function: str) -> Any:
        if function == "cuMissing":
            raise AttributeError(function)

        def call(*arguments: Any) -> int:
            self.calls.append(function)
            error = self.errors.get(function, 0)
            return error or int(getattr(self, f"_{function}")(*arguments) or 0)

        return call

    def _cuDeviceGet(self, ordinal: Any, index: int) -> None:  # noqa: N802
        ordinal._obj.value = 100 + index

    def _cuDeviceGetUuid_v2(self, uuid: Any, ordinal: Any) -> None:  # noqa: N802
        uuid.raw = b"uuid of %07d" % ordinal.value + b"\0"

    def _cuDevicePrimaryCtxRetain(self, context: Any, ordinal: Any) -> None:  # noqa: N802
        context._obj.value = 1000 + ordinal.value

    def _cuCtxPushCurrent_v2(self, context: Any) -> None:  # noqa: N802
        self.contexts.append(context.value)

    def _cuCtxPopCurrent_v2(self, context: Any) -> None:  # noqa: N802
        context._obj.value = self.contexts.pop()

    def _cuMemGetAddressRange_v2(self, begin: Any, size: Any, address: Any) -> int:  # noqa: N802
        if self.contexts != [1103] or not BASE <= address.value < BASE + SIZE:
            return INVALID_CONTEXT
        begin._obj.value, size._obj.value = BASE, SIZE
        return 0

    def _cuIpcGetMemHandle(self, handle: Any, begin: Any) -> int:  # noqa: N802
        if self.contexts != [1103] or begin.value != BASE:
            return INVALID_CONTEXT
        handle.raw = HANDLE
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    library = Driver("libcuda.so.1")
    monkeypatch.setattr(ctypes, "CDLL", lambda path: library)
    cuda._driver.cache_clear()
    monkeypatch.setattr(cuda, "_driver", cuda._driver.__wrapped__)
    return library


def tensor_at(address: int) -> Any:
    return SimpleNamespace(data_ptr=lambda: address, device=SimpleNamespace(index=3))


def test_a_tensor_is_a_part_of_an_allocation(driver: Driver) -> None:
    allocation = cuda.allocation_of(tensor_at(BASE + 512))
    assert allocation == (BASE, SIZE, HANDLE, b"uuid of 0000103\0")
    assert driver.contexts == []


@pytest.mark.parametrize("function", ["cuMemGetAddressRange_v2", "cuIpcGetMemHandle"])
def test_memory_without_a_handle(driver: Driver, function: str) -> None:
    driver.errors[function] = 1
    with pytest.raises(cuda.NotExportableError, match=f"{function} failed with CUresult 1"):
        cuda.allocation_of(tensor_at(BASE))
    assert driver.contexts == []


def test_a_driver_that_lacks_a_function(driver: Driver) -> None:
    with pytest.raises(cuda.NotExportableError, match=r"libcuda.so.1 has no cuMissing"):
        cuda._Driver().call("cuMissing")


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_DRIVER", "libthere_is_none.so.1")
    with pytest.raises(cuda.NotExportableError, match=r"cannot load libthere_is_none.so.1"):
        cuda._Driver()


def test_numpy_arrays_are_on_no_device() -> None:
    assert not cuda.is_on_device([1.0])
