"""CUDA tensors that stay in place, on a fake device."""

from __future__ import annotations

import asyncio
import gc
import mmap
import warnings
from typing import Any

import numpy as np
import pytest
from fake_cuda import UUID, FakeCuda
from fake_memory import READ, REGISTER, REGISTER_DEVICE, RELEASE, WRITE, Sharing
from fake_server import Held, watch_payloads
from sample import (
    ALL,
    BATCH,
    MASK,
    OLD,
    ROLLOUT,
    SHAPE,
    WEIGHTS,
    answer,
    assert_is_the_answer,
    on,
    sent,
)

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.shared_memory.region import SUPPORTED

torch = pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
pytestmark = pytest.mark.skipif(not SUPPORTED, reason="memory is shared on Linux only")


def kinds(packets: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    return [(operation, access) for operation, access, _ in packets]


def numpy_of(result: cw.Result[Any]) -> cw.Result[Any]:
    for name in ALL:
        assert isinstance(getattr(result, name), torch.Tensor)
    return result


@pytest.mark.filterwarnings("error")
def test_no_byte_travels(computing: Sharing, sharer: cw.Client, device: FakeCuda) -> None:
    server, memory = computing
    sizes = watch_payloads(server)
    result = sharer.correct(**on(device), outputs=ALL)
    assert_is_the_answer(numpy_of(result))
    assert sizes == [0]
    for role, array in (
        (tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS, ROLLOUT),
        (tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS, OLD),
        (tensor_pb2.TENSOR_ROLE_RESPONSE_MASK, MASK),
    ):
        assert sent(server.requests[0], role).data == array.tobytes()
    # Nothing was copied to memory of the host.
    assert not any(operation == REGISTER for operation, _ in kinds(memory.packets))
    assert all(device.is_on_device(getattr(result, name)) for name in ("weights", "keep_mask"))


def test_dtypes_and_layouts_are_converted_on_the_device(
    computing: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    """Here torch converts to its own memory on the host, so that this tensor is copied."""
    server, _ = computing
    mask, old = device.put(MASK.astype(bool)), device.put(OLD.T.copy()).T
    batch = {**on(device), "response_mask": mask, "old_log_probs": old}
    with pytest.warns(cw.CopyWarning):
        result = sharer.correct(**batch, outputs=ALL)
    assert result.keep_mask.dtype == torch.bool
    assert result.token_reasons.dtype == torch.int32
    assert_is_the_answer(result)
    assert sent(server.requests[0], tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS).data == OLD.tobytes()
    long = sharer.correct(**{**on(device), "response_mask": device.put(MASK.astype(np.int64))})
    assert long.keep_mask.dtype == torch.int64
    np.testing.assert_array_equal(long.keep_mask, MASK)


def test_the_stream_is_waited_for_before_anything_is_sent(
    computing: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    server, memory = computing
    waits: list[int] = []
    inner = memory.serve(answer)

    def note(request: Any, context: Any) -> Any:
        waits.append(device.waits)
        return inner(request, context)

    server.handler = note
    sharer.correct(**on(device))
    # One wait, for the inputs and for earlier work on the memory of the outputs.
    assert waits == [1]


def test_allocations_are_opened_once_and_as_long_as_their_tensors_live(
    computing: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    _, memory = computing
    batch = on(device)
    out = {"weights": device.put(WEIGHTS), "keep_mask": device.put(MASK)}
    for _ in range(3):
        assert sharer.correct(**batch, outputs=tuple(out), out=out).weights is out["weights"]
    assert kinds(memory.packets) == [(REGISTER_DEVICE, READ)] * 3 + [(REGISTER_DEVICE, WRITE)] * 2
    part = batch["old_log_probs"][0]
    batch.clear()
    out.clear()
    gc.collect()
    sharer.correct(**BATCH)  # the answers to releases are read by and by
    released = [packet for packet in memory.packets if packet[0] == RELEASE]
    assert len(released) == 4
    assert len([1 for access, _ in memory.regions.values() if access == READ]) == 2
    del part


def test_parts_of_one_allocation_are_one_region(
    computing: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    _, memory = computing
    size = ROLLOUT.nbytes
    block = device.allocate(4096)
    parts = [block[i * 64 : i * 64 + size].view(torch.float32).reshape(SHAPE) for i in (0, 1)]
    for part, array in zip(parts, (ROLLOUT, OLD), strict=True):
        part.copy_(torch.from_numpy(array))
    batch = {**on(device), "rollout_log_probs": parts[0], "old_log_probs": parts[1]}
    assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert kinds(memory.packets).count((REGISTER_DEVICE, READ)) == 2


def test_an_input_may_be_an_output(computing: Sharing, sharer: cw.Client, device: FakeCuda) -> None:
    server, memory = computing
    batch = on(device)
    old = batch["old_log_probs"]
    result = sharer.correct(**batch, out={"weights": old})
    assert result.weights is old
    np.testing.assert_array_equal(old, WEIGHTS)
    # The server must not write over its inputs.
    (request,) = server.requests
    read = {tensor.shared_memory.handle for tensor in request.tensors}
    for destination in request.destinations:
        handle = destination.shared_memory.handle
        assert memory.regions.get(handle, (WRITE, None))[0] == WRITE
        assert handle not in read


def test_autograd_sees_what_is_written(
    computing: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    out = device.put(WEIGHTS)
    before = out._version
    sharer.correct(**on(device), out={"weights": out})
    assert out._version > before


def test_memory_without_a_handle_is_copied(
    computing: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    _, memory = computing
    device.exportable = False
    with pytest.warns(cw.CopyWarning, match="memory without a handle") as warned:
        assert_is_the_answer(sharer.correct(**on(device), outputs=ALL))
    assert [warning.filename for warning in warned] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_is_the_answer(sharer.correct(**on(device), outputs=ALL))
    assert set(kinds(memory.packets)) == {(REGISTER, READ), (REGISTER, WRITE)}


def test_memory_that_the_server_cannot_open_is_copied(
    computing: Sharing, sharer: cw.Client, device: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in another PID namespace; the client tries it once."""
    _, memory = computing
    monkeypatch.setattr("fake_memory.UUID", b"x" * 16)
    with pytest.warns(cw.CopyWarning, match="I will not") as warned:
        assert_is_the_answer(sharer.correct(**on(device), outputs=ALL))
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_is_the_answer(sharer.correct(**on(device), outputs=ALL))
    assert [operation for operation, _ in kinds(memory.packets)].count(REGISTER_DEVICE) == 1


def test_one_refused_allocation_does_not_end_sharing(
    computing: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    """As a small one, with a handle that would open others too; the client tries it once."""
    _, memory = computing
    assert_is_the_answer(sharer.correct(**on(device), outputs=ALL))
    small = device.allocate(3 * mmap.PAGESIZE)
    memory.refused_sizes.add(len(small))
    old = small[: OLD.nbytes].view(torch.float32).reshape(OLD.shape)
    batch = {**on(device), "old_log_probs": old.copy_(torch.from_numpy(OLD))}
    memory.packets.clear()
    with pytest.warns(cw.CopyWarning, match="I will not"):
        assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
    sizes = [size for operation, _, size in memory.packets if operation == REGISTER_DEVICE]
    assert sizes.count(len(small)) == 1
    # The other tensors of the batch, and its outputs.
    assert len(sizes) > 4


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("offer", ["no devices", "another device", "no feature"])
def test_a_server_that_does_not_compute_there_gets_copies(
    sharing: Sharing, sharer: cw.Client, device: FakeCuda, offer: str
) -> None:
    server, memory = sharing
    if offer != "no devices":
        server.info.devices.add(uuid=UUID if offer == "no feature" else b"another device's")
    if offer == "another device":
        server.info.features.append("cuda_ipc")
        with pytest.warns(cw.CopyWarning, match="does not compute on the tensor's device"):
            sharer.correct(**on(device))
    assert_is_the_answer(sharer.correct(**on(device), outputs=ALL))
    assert not any(operation == REGISTER_DEVICE for operation, _ in kinds(memory.packets))


@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_other_ways_copy_to_the_host(computing: Sharing, device: FakeCuda, transport: Any) -> None:
    server, memory = computing
    with cw.Client(server.target, transport=transport) as client:
        assert_is_the_answer(client.correct(**on(device), outputs=ALL))
    assert memory.packets == []


def test_a_server_that_was_restarted(
    computing: Sharing, sharer: cw.Client, device: FakeCuda
) -> None:
    _, memory = computing
    batch = on(device)
    for disturb in (memory.forget, memory.disconnect, lambda: None):
        assert_is_the_answer(sharer.correct(**batch, outputs=ALL))
        disturb()


def test_submitted_batches_are_copied_on_the_device(
    computing: Sharing, sharer: cw.Client, device: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, memory = computing
    # Its memory is on the fake device, like that of a real clone.
    monkeypatch.setattr(torch.Tensor, "clone", lambda tensor: device.put(tensor))
    sharer.correct(**BATCH)  # requests the server's capabilities
    memory.packets.clear()
    held, inner = Held(), memory.serve(answer)
    server.handler = lambda request, context: (held(request, context), inner(request, context))[1]
    batch = on(device)
    future = sharer.submit(**batch, outputs=ALL)
    for tensor in list(batch.values())[:3]:
        tensor.zero_()
    held.release()
    assert_is_the_answer(future.result(30))
    assert sent(server.requests[-1], tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS).data == OLD.tobytes()
    assert not any(operation == REGISTER for operation, _ in kinds(memory.packets))


def test_asyncio(computing: Sharing, device: FakeCuda) -> None:
    server, memory = computing

    async def run() -> None:
        async with counterweight_rl.aio.Client(
            server.target, transport="shared_memory", timeout=300
        ) as client:
            batches = [client.correct(**on(device), outputs=ALL) for _ in range(4)]
            for result in await asyncio.gather(*batches):
                assert_is_the_answer(result)

    asyncio.run(run())
    assert not any(operation == REGISTER for operation, _ in kinds(memory.packets))


@pytest.mark.filterwarnings("error")
def test_nobody_at_the_socket(computing: Sharing, sharer: cw.Client, device: FakeCuda) -> None:
    """No warning about copies: there is no other shared memory either."""
    server, memory = computing
    server.info.shared_memory_socket = memory.path + "x"
    with pytest.raises(cw.CounterweightError, match="cannot connect"):
        sharer.correct(**on(device))
    assert server.requests == []
