"""Calls of the CUDA driver, with a fake library."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fake_driver import BASE, HANDLE, SIZE, Driver

from counterweight_rl.arrays import cuda

# Mappings have 2 MiB, or 20 MiB for a large tensor of torch.
PART, PARTS_BASE = 2 << 20, 0x7E00_0000_0000
UUID = b"uuid of device 3"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    library = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda path: {"libcuda.so.1": library}[path])
    loaded = cuda._Driver()
    monkeypatch.setattr(cuda, "_driver", lambda: loaded)
    return library


@pytest.fixture
def mapped(driver: Driver) -> Iterator[Driver]:
    """The driver, with three adjacent mappings, each of a file of its own."""
    for part in range(3):
        file = os.memfd_create("fake_cuda_part", os.MFD_CLOEXEC)
        driver.mappings[PARTS_BASE + part * PART] = (PART, file)
    yield driver
    for _, file in driver.mappings.values():
        os.close(file)


def tensor_at(address: int, shape: tuple[int, ...] = (4,), stride: tuple[int, ...] = (1,)) -> Any:
    """A float32 tensor."""
    return SimpleNamespace(
        data_ptr=lambda: address,
        device=SimpleNamespace(index=3),
        shape=shape,
        stride=lambda: stride,
        numel=lambda: int(shape[0] * (shape[1] if len(shape) > 1 else 1)),
        element_size=lambda: 4,
    )


def open_files() -> list[str]:
    names = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            names.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(names)


def test_a_tensor_is_a_part_of_an_allocation(driver: Driver) -> None:
    allocation = cuda.allocation_of(tensor_at(BASE + 512))
    assert allocation == (BASE, SIZE, HANDLE, UUID, 0)
    assert not allocation.in_parts
    assert driver.contexts == []


def test_an_allocation_with_a_handle_needs_no_descriptors(driver: Driver) -> None:
    with cuda.descriptors(cuda.allocation_of(tensor_at(BASE))) as files:
        assert files == []
    assert "cuMemRetainAllocationHandle" not in driver.calls


@pytest.mark.parametrize("function", ["cuMemGetAddressRange_v2", "cuIpcGetMemHandle"])
def test_memory_without_a_handle(driver: Driver, function: str) -> None:
    driver.errors[function] = 1
    with pytest.raises(cuda.NotExportableError, match=f"{function} failed with CUresult 1"):
        cuda.allocation_of(tensor_at(BASE))
    assert driver.contexts == []


def test_the_parts_of_a_tensor_are_the_mappings_that_it_touches(mapped: Driver) -> None:
    second = PARTS_BASE + PART
    for address, shape, stride, expected in (
        (second + 512, (4,), (1,), (second, PART)),
        (second, (PART // 4,), (1,), (second, PART)),
        (second - 16, (4,), (1,), (PARTS_BASE, PART)),
        (second - 16, (5,), (1,), (PARTS_BASE, 2 * PART)),
        (second - 4, (PART // 4 + 2,), (1,), (PARTS_BASE, 3 * PART)),
        # Columns of a matrix: the last element decides.
        (second - 64, (4, 2), (4, 1), (PARTS_BASE, PART)),
        (second - 64, (5, 1), (4, 1), (PARTS_BASE, 2 * PART)),
        # An expanded element.
        (second - 4, (1000,), (0,), (PARTS_BASE, PART)),
    ):
        allocation = cuda.parts_of(tensor_at(address, shape, stride))
        assert allocation == (*expected, b"", UUID, PART), (address, shape, stride)
        assert allocation.in_parts
    assert mapped.contexts == []


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_an_empty_tensor_has_the_part_of_its_address(
    mapped: Driver, shape: tuple[int, ...]
) -> None:
    stride = (3, 1)[-len(shape) :]
    allocation = cuda.parts_of(tensor_at(PARTS_BASE + PART - 4, shape, stride))
    assert allocation == (PARTS_BASE, PART, b"", UUID, PART)
    # torch gives no address to an empty tensor that it allocates.
    with pytest.raises(cuda.NotExportableError, match="cuPointerGetAttribute failed"):
        cuda.parts_of(tensor_at(0, shape, stride))


def test_parts_of_different_sizes_are_refused(mapped: Driver) -> None:
    end = PARTS_BASE + 3 * PART
    mapped.mappings[end] = (2 * PART, os.memfd_create("larger"))
    with pytest.raises(cuda.NotExportableError, match="parts of different sizes"):
        cuda.parts_of(tensor_at(end - 4, (2,)))


def test_parts_that_are_not_adjacent_are_refused(
    mapped: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mapping that begins before its predecessor's end."""
    find = mapped.mapping_of
    second = PARTS_BASE + PART
    monkeypatch.setattr(mapped, "mapping_of", lambda a: PARTS_BASE if a == second else find(a))
    with pytest.raises(cuda.NotExportableError, match="parts that are not adjacent"):
        cuda.parts_of(tensor_at(second - 4, (2,)))


@pytest.mark.parametrize("size", [0, 8])
def test_a_mapping_that_lacks_the_tensor_is_refused(
    mapped: Driver, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Drivers answer with zeros where they know no mapping."""
    monkeypatch.setattr(mapped, "mapping_of", lambda address: PARTS_BASE)
    monkeypatch.setitem(mapped.mappings, PARTS_BASE, (size, mapped.mappings[PARTS_BASE][1]))
    with pytest.raises(cuda.NotExportableError, match="no mapping at the tensor's address"):
        cuda.parts_of(tensor_at(PARTS_BASE + 8))


def test_the_end_of_the_mappings_is_an_error(mapped: Driver) -> None:
    with pytest.raises(cuda.NotExportableError, match="cuPointerGetAttribute failed with CUresult"):
        cuda.parts_of(tensor_at(PARTS_BASE + 3 * PART - 4, (2,)))
    assert mapped.contexts == []


def test_a_packet_has_room_for_253_descriptors(driver: Driver) -> None:
    for part in range(254):
        driver.mappings[PARTS_BASE + part * PART] = (PART, -1)
    most = 253 * PART // 4
    allocation = cuda.parts_of(tensor_at(PARTS_BASE, (most,)))
    assert allocation.size == 253 * allocation.part_size
    with pytest.raises(cuda.NotExportableError, match="spans more than 253 parts"):
        cuda.parts_of(tensor_at(PARTS_BASE, (most + 1,)))


def test_descriptors_are_in_the_order_of_addresses_and_closed(mapped: Driver) -> None:
    before = open_files()
    allocation = cuda.parts_of(tensor_at(PARTS_BASE, (2 * PART // 4 + 1,)))
    assert open_files() == before
    with cuda.descriptors(allocation) as files:
        expected = [os.fstat(file).st_ino for _, file in sorted(mapped.mappings.values())]
        assert [os.fstat(file).st_ino for file in files] == expected
        assert len(set(expected)) == 3
        # The memory itself is not kept.
        assert mapped.retained == []
        assert mapped.contexts == []
    assert open_files() == before


def test_descriptors_are_closed_after_an_error(mapped: Driver) -> None:
    before = open_files()
    allocation = cuda.parts_of(tensor_at(PARTS_BASE, (2 * PART // 4,)))
    with pytest.raises(ConnectionResetError), cuda.descriptors(allocation):
        raise ConnectionResetError
    assert open_files() == before


@pytest.mark.parametrize(
    "function", ["cuMemRetainAllocationHandle", "cuMemExportToShareableHandle", "cuMemRelease"]
)
def test_memory_without_descriptors(mapped: Driver, function: str) -> None:
    """As memory that was made without the permission; here that of the second part."""
    before = open_files()
    allocation = cuda.parts_of(tensor_at(PARTS_BASE, (PART // 4 + 1,)))
    mapped.errors[function] = 801
    mapped.spared[function] = 1
    with (
        pytest.raises(cuda.NotExportableError, match=f"{function} failed with CUresult 801"),
        cuda.descriptors(allocation),
    ):
        raise AssertionError("there is one descriptor only")
    assert open_files() == before
    assert len(mapped.retained) == (function == "cuMemRelease")
    assert mapped.contexts == []


def test_a_driver_that_lacks_a_function(driver: Driver) -> None:
    with pytest.raises(cuda.NotExportableError, match=r"libcuda.so.1 has no cuMissing"):
        cuda._Driver().call("cuMissing")


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_DRIVER", "libthere_is_none.so.1")
    with pytest.raises(cuda.NotExportableError, match=r"cannot load libthere_is_none.so.1"):
        cuda._Driver()


def test_numpy_arrays_are_on_no_device() -> None:
    assert not cuda.is_on_device([1.0])
