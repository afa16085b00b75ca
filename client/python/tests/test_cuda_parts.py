"""CUDA tensors in memory that is mapped in parts, on a fake device."""

from __future__ import annotations

import contextlib
import gc
import math
import mmap
import os
import socket
import struct
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import UUID, FakeCuda, Segment
from fake_memory import (
    PACKET,
    READ,
    REGISTER,
    REGISTER_DEVICE,
    REGISTER_PARTS,
    RELEASE,
    WRITE,
    Sharing,
)
from fake_server import watch_payloads
from sample import ALL, BATCH, MASK, OLD, ROLLOUT, WEIGHTS, assert_is_the_answer, on, sent

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.arrays import cuda
from counterweight_rl.shared_memory.control import Control, RefusedError
from counterweight_rl.shared_memory.device_region import DeviceRegion
from counterweight_rl.shared_memory.pool import Pool
from counterweight_rl.shared_memory.region import SUPPORTED, Access
from counterweight_rl.status import StatusCode

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
pytestmark = pytest.mark.skipif(not SUPPORTED, reason="memory is shared on Linux only")

PAGE = mmap.PAGESIZE
OLD_ROLE = tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS
EXPORT = "cuMemExportToShareableHandle"


@pytest.fixture
def opening(computing: Sharing) -> Sharing:
    """A server that opens parts too."""
    computing[0].info.features.append("cuda_parts")
    return computing


def in_parts(segment: Segment) -> dict[str, Any]:
    """The sample's batch; the old log-probabilities lie in the first two parts."""
    return {
        **BATCH,
        "rollout_log_probs": segment.put(64, ROLLOUT),
        "old_log_probs": segment.put(PAGE - 8, OLD),
        "response_mask": segment.put(PAGE + 512, MASK),
    }


def registered(packets: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [packet for packet in packets if packet[0] == REGISTER_PARTS]


def operations(packets: list[tuple[int, ...]]) -> set[int]:
    return {packet[0] for packet in packets}


def descriptors(device: FakeCuda) -> int:
    """Returns how many descriptors of the device's parts are open beside the device's own."""
    own = {fd: os.fstat(fd).st_ino for _, fd in device.driver.mappings.values()}
    count = -len(own)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            count += os.stat(f"/proc/self/fd/{name}").st_ino in own.values()
    return count


@contextlib.contextmanager
def copied(match: str) -> Iterator[None]:
    """Expects one warning."""
    with pytest.warns(cw.CopyWarning, match=match) as warned:
        yield
    assert [warning.category for warning in warned].count(cw.CopyWarning) == 1


@pytest.mark.filterwarnings("error")
def test_no_byte_travels(opening: Sharing, sharer: cw.Client, device: FakeCuda) -> None:
    server, memory = opening
    segment = device.segment(4)
    weights = segment.put(3 * PAGE - 12, np.zeros_like(WEIGHTS))
    sizes = watch_payloads(server)
    result = sharer.correct(**in_parts(segment), outputs=ALL, out={"weights": weights})
    assert_is_the_answer(result)
    assert result.weights is weights
    assert sizes == [0]
    assert sent(server.requests[0], OLD_ROLE).data == OLD.tobytes()
    # A region has the parts that its tensor touches.
    assert sorted(registered(memory.packets)) == [
        (REGISTER_PARTS, READ, PAGE),
        (REGISTER_PARTS, READ, PAGE),
        (REGISTER_PARTS, READ, 2 * PAGE),
        (REGISTER_PARTS, WRITE, 2 * PAGE),
    ]
    assert sorted(memory.parts) == [1, 1, 2, 2]
    assert REGISTER not in operations(memory.packets)
    assert descriptors(device) == 0


def test_the_packet(device: FakeCuda, tmp_path: Path) -> None:
    """Byte for byte, with a server that takes its time."""
    segment = device.segment(5)
    parts = cuda.parts_of(segment.put(PAGE + 8, np.zeros(3 * PAGE - 8, np.uint8)))
    mapped = [device.driver.mappings[parts.address + i * PAGE][1] for i in range(3)]
    with contextlib.ExitStack() as ends:
        listening = ends.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listening.bind(str(tmp_path / "m"))
        listening.listen()
        control = Control(str(tmp_path / "m"))
        ends.callback(control.close)
        connection = ends.enter_context(listening.accept()[0])
        threads = ends.enter_context(ThreadPoolExecutor())
        answer = threads.submit(control.register, DeviceRegion(Access.WRITE, parts), math.inf)
        packet, received, flags, _ = socket.recv_fds(connection, 1024, 254)
        assert [os.fstat(fd).st_ino for fd in received] == [os.fstat(fd).st_ino for fd in mapped]
        for fd in received:
            os.close(fd)
        assert packet == b"CWM1" + struct.pack("<IIIQ16x", 4, 2, 0, 3 * PAGE) + UUID
        assert len(packet) == 56
        assert flags & socket.MSG_CTRUNC == 0
        # The client closes its descriptors while it waits.
        end = time.monotonic() + 150
        while descriptors(device) != 0:
            assert time.monotonic() < end
            time.sleep(0.001)
        assert not answer.done()
        connection.send(PACKET.pack(b"CWM1", 0, 0, 0, 0, b"0123456789abcdef"))
        assert answer.result(30) == b"0123456789abcdef"
        refused = threads.submit(control.register, DeviceRegion(Access.READ, parts), math.inf)
        for fd in socket.recv_fds(connection, 1024, 254)[1]:
            os.close(fd)
        connection.send(PACKET.pack(b"CWM1", 8, 0, 0, 0, b"") + b"full")
        with pytest.raises(RefusedError, match="full") as caught:
            refused.result(30)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
    assert descriptors(device) == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        control.register(DeviceRegion(Access.READ, parts), math.inf)
    assert descriptors(device) == 0


def test_as_many_descriptors_as_a_packet_carries(opening: Sharing, device: FakeCuda) -> None:
    _, memory = opening
    segment = device.segment(1)
    (part,) = device.driver.mappings.values()
    device.driver.mappings.update((segment.address + i * PAGE, part) for i in range(253))
    pool = Pool(memory.path, 0, frozenset([UUID]), True)
    tensor = segment.put(0, MASK)
    # All parts have the memory of one file; the test need not open more.
    parts = cuda.parts_of(tensor)._replace(size=253 * PAGE)
    with pytest.MonkeyPatch.context() as change:
        change.setattr(cuda, "parts_of", lambda tensor: parts)
        region, offset = pool.lend(tensor, Access.READ)
    assert (region.size, offset) == (253 * PAGE, 0)
    assert memory.parts == [253]
    assert descriptors(device) == 0
    pool.close()


def test_a_tensor_in_too_many_parts_is_copied(
    opening: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    _, memory = opening
    segment = device.segment(3)
    with pytest.MonkeyPatch.context() as change:
        change.setattr(cuda, "_MOST_PARTS", 1)
        with copied("copied to the host: the tensor spans more than 1 parts"):
            assert_is_the_answer(sharer.correct(**in_parts(segment), outputs=ALL))
    # The tensors that lie in one part are shared.
    assert memory.parts == [1, 1]


def test_a_server_without_the_feature_gets_copies(
    computing: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    _, memory = computing
    batch = in_parts(device.segment(2))
    with copied("memory without a handle"):
        assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert REGISTER_PARTS not in operations(memory.packets)
    assert device.driver.calls.count("cuPointerGetAttribute") == 0


@pytest.mark.filterwarnings("error")
def test_parts_alone_are_no_offer(sharing: Sharing, sharer: cw.Client, device: FakeCuda) -> None:
    """A server without "cuda_ipc" is given no device memory at all."""
    server, memory = sharing
    server.info.features.append("cuda_parts")
    server.info.devices.add(uuid=UUID)
    assert_is_the_answer(sharer.correct(**in_parts(device.segment(2)), outputs=ALL))
    assert operations(memory.packets) == {REGISTER}


@pytest.mark.parametrize("refused", [REGISTER_PARTS, REGISTER_DEVICE])
def test_a_server_that_refuses_one_kind_opens_the_other(
    opening: Sharing, sharer: cw.Client, device: FakeCuda, refused: int
) -> None:
    """As in another PID namespace, where handles cannot be opened; the client tries it once."""
    _, memory = opening
    memory.refused_operations.add(refused)
    segment = device.segment(2)
    batches = {REGISTER_PARTS: in_parts(segment), REGISTER_DEVICE: on(device)}
    refused_batch = batches.pop(refused)
    ((other, shared_batch),) = batches.items()
    with copied("I will not"):
        assert_is_the_answer(sharer.correct(**refused_batch, outputs=ALL))
    tried = [packet[0] for packet in memory.packets].count(refused)
    assert tried == 1
    memory.packets.clear()
    assert_is_the_answer(sharer.correct(**shared_batch, outputs=ALL))
    assert [packet[:2] for packet in memory.packets].count((other, READ)) == 3
    # Another segment or allocation is not tried.
    for batch in (in_parts(device.segment(2)), on(device)):
        assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert refused not in operations(memory.packets)


def test_opened_allocations_promise_no_parts(
    opening: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    """A server that refuses the first part would refuse the others too."""
    _, memory = opening
    memory.refused_operations.add(REGISTER_PARTS)
    assert_is_the_answer(sharer.correct(**on(device), outputs=ALL))
    with copied("I will not"):
        assert_is_the_answer(sharer.correct(**in_parts(device.segment(2)), outputs=ALL))
    assert len(registered(memory.packets)) == 1


def test_a_server_that_refuses_both_kinds_is_not_asked_again(
    opening: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    _, memory = opening
    memory.refused_operations.update((REGISTER_PARTS, REGISTER_DEVICE))
    with copied("I will not"):
        sharer.correct(**in_parts(device.segment(2)))
    for batch in (in_parts(device.segment(2)), on(device)):
        assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert [packet[0] for packet in memory.packets].count(REGISTER_DEVICE) == 1
    assert len(registered(memory.packets)) == 1
    assert sharer._connection.router.pool().devices == frozenset()


def test_one_refused_region_does_not_end_sharing(
    opening: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    _, memory = opening
    batch = in_parts(device.segment(2))
    memory.refused_sizes.add(2 * PAGE)  # that of the old log-probabilities
    with copied("I will not"):
        assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert sorted(size for _, _, size in registered(memory.packets)) == [PAGE, PAGE, 2 * PAGE]


def test_a_region_lives_as_long_as_a_tensor_in_it(
    opening: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    """The allocator gives the rest of its parts to other tensors meanwhile."""
    server, memory = opening
    segment = device.segment(1)
    lives = segment.put(0, ROLLOUT)
    for old in (OLD, OLD - 1, OLD - 2):
        batch = {**on(device), "rollout_log_probs": lives, "old_log_probs": segment.put(256, old)}
        sharer.correct(**batch)
        assert sent(server.requests[-1], OLD_ROLE).data == old.tobytes()
        del batch
        gc.collect()
    assert len(registered(memory.packets)) == 1
    handles = {sent(request, OLD_ROLE).shared_memory.handle for request in server.requests}
    assert handles <= set(memory.regions)
    del lives
    gc.collect()
    sharer.correct(**BATCH)  # the answers to releases are read by and by
    assert handles.isdisjoint(memory.regions)


def test_parts_that_are_mapped_anew_are_registered_anew(
    opening: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    """Their addresses are the same; the server would read what was there before."""
    server, memory = opening
    segment = device.segment(2)
    for change in (0, 1):
        old = segment.put(PAGE - 8, OLD - change)
        sharer.correct(**{**on(device), "old_log_probs": old})
        assert sent(server.requests[-1], OLD_ROLE).data == (OLD - change).tobytes()
        del old
        gc.collect()
        for part in (0, 1):
            segment.renew(part)
    assert registered(memory.packets) == [(REGISTER_PARTS, READ, 2 * PAGE)] * 2


def test_memory_that_the_driver_does_not_export_is_copied(
    opening: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    _, memory = opening
    device.driver.errors[EXPORT] = 801
    batch = in_parts(device.segment(2))
    with copied(f"copied to the host: {EXPORT} failed with CUresult 801"):
        assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert REGISTER_PARTS not in operations(memory.packets)
    assert device.driver.retained == []
    assert descriptors(device) == 0
    # Such memory ends the sharing of no other.
    device.driver.errors.clear()
    memory.packets.clear()
    sharer.correct(**batch)
    assert len(registered(memory.packets)) == 3


def test_a_server_that_was_restarted(opening: Sharing, sharer: cw.Client, device: FakeCuda) -> None:
    """It gets new descriptors, for which the driver may have none."""
    _, memory = opening
    batch = in_parts(device.segment(2))
    for disturb in (memory.forget, memory.disconnect, memory.forget):
        assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
        disturb()
    assert len(registered(memory.packets)) == 9
    assert descriptors(device) == 0
    device.driver.errors[EXPORT] = 1
    with pytest.raises(cw.CounterweightError, match=f"{EXPORT} failed with CUresult 1"):
        sharer.correct(**batch, outputs=ALL)
    assert descriptors(device) == 0


def test_a_full_server_gets_back_what_no_call_uses(
    opening: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    _, memory = opening
    idle, used = device.segment(2), device.segment(2)
    idle_batch = in_parts(idle)
    assert_is_the_answer(sharer.correct(**idle_batch, outputs=ALL))
    memory.packets.clear()
    memory.refuse = 8
    with copied("RESOURCE_EXHAUSTED"), pytest.raises(cw.CounterweightError):
        sharer.correct(**in_parts(used), outputs=ALL)
    assert [packet[0] for packet in memory.packets].count(RELEASE) >= 3
    memory.refuse = 0
    memory.packets.clear()
    # It may have room later.
    assert_is_the_answer(sharer.correct(**in_parts(used), outputs=ALL))
    assert len(registered(memory.packets)) == 3


@pytest.mark.filterwarnings("error")
def test_another_server_behind_the_same_socket(
    opening: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    """Its capabilities count, not those of the server before it."""
    server, memory = opening
    batch = in_parts(device.segment(2))
    assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert sent(server.requests[-1], OLD_ROLE).shared_memory.offset == PAGE - 8
    router = sharer._connection.router
    server.info.features.remove("cuda_parts")
    router.capabilities = None
    memory.packets.clear()
    with copied("memory without a handle"):
        assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert REGISTER_PARTS not in operations(memory.packets)
    server.info.features.append("cuda_parts")
    router.capabilities = None
    assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert sent(server.requests[-1], OLD_ROLE).shared_memory.offset == PAGE - 8
