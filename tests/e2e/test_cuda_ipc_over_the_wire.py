"""Tensors in device memory that a server opens by CUDA IPC, on the fake CUDA runtime."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import counterweight_rl as cw
import numpy as np
import pytest
from batches import padded_batch
from fake_cuda import FakeCuda
from server_process import DEADLINE_SECONDS, REPOSITORY, ServerProcess, binary
from transports import LOSS, SMALL, assert_same

BATCHES = {**SMALL, "segments": padded_batch(7, 9000, seed=9)}
CLIENTS = 100


@pytest.fixture(scope="module")
def computing(start_server: Callable[..., ServerProcess], folder: pathlib.Path) -> ServerProcess:
    """A server on the fake CUDA runtime that shares memory."""
    program = binary().parent / "counterweight-server-on-fake-cuda"
    if not program.exists():
        pytest.skip(f"{program} is not built: with sanitizers it cannot be")
    return start_server(
        f"--shared_memory_socket={folder}/cuda_memory",
        "--backend=cuda",
        listen=f"unix:{folder}/cuda",
        program=program,
    )


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    pytest.importorskip("torch", reason="needs torch: .ci/setup torch, or make test TORCH=1")
    return FakeCuda(monkeypatch)


def on(device: FakeCuda, batch: dict[str, Any]) -> dict[str, Any]:
    """Returns the batch with tensors on the device; lengths are unchanged."""
    return {
        name: device.put(value) if "length" not in name else value for name, value in batch.items()
    }


def bytes_sent(server: ServerProcess) -> float:
    names = ("request", "response")
    return sum(server.metric(f"counterweight_{name}_bytes_total") for name in names)


def descriptors(server: ServerProcess) -> int:
    """Returns how much memory of the fake runtime the server has open."""
    count = 0
    for path in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since the folder was read
            count += "fake_cuda" in os.readlink(path)
    return count


def reach(value: Callable[[], float], goal: float) -> None:
    """Waits for the value: the server notices a closed connection later."""
    end = time.monotonic() + DEADLINE_SECONDS
    while value() != goal:
        assert time.monotonic() < end, f"{value()} instead of {goal}"


def nothing_is_left(server: ServerProcess) -> None:
    for name in ("regions", "bytes", "device_bytes"):
        reach(lambda name=name: server.metric(f"counterweight_shared_memory_{name}"), 0)
    reach(lambda: server.metric("counterweight_requests_in_flight"), 0)
    reach(lambda: server.metric("counterweight_admitted_bytes"), 0)
    assert descriptors(server) == 0


@pytest.mark.filterwarnings("error::counterweight_rl.CopyWarning")
@pytest.mark.parametrize("name", [name for name in BATCHES if name != "none"])
def test_the_answer_is_the_cpu_servers(
    computing: ServerProcess, server: ServerProcess, device: FakeCuda, name: str
) -> None:
    batch = BATCHES[name]
    outputs = ("weights", "keep_mask", "token_reasons", "sequence_reasons", "gradient")
    with cw.Client(server.address) as client:
        expected = client.correct(method=LOSS, outputs=outputs, **batch)
    with cw.Client(computing.address, transport="shared_memory") as client:
        info = client.server_info()
        assert "cuda_ipc" in info.features
        before = bytes_sent(computing)
        result = client.correct(method=LOSS, outputs=outputs, **on(device, batch))
        assert bytes_sent(computing) - before < 10_000
        assert computing.metric("counterweight_shared_memory_bytes") == 0
        assert result.backend == "cuda"
        assert device.is_on_device(result.weights)
    arrays = {
        output: getattr(result, output).numpy().astype(getattr(expected, output).dtype)
        for output in outputs
    }
    assert_same(replace(result, backend="cpu", **arrays), expected)


@pytest.mark.filterwarnings("error::counterweight_rl.CopyWarning")
def test_memory_in_parts_is_used_in_place(
    computing: ServerProcess, server: ServerProcess, device: FakeCuda
) -> None:
    """As torch's expandable segments have it: a descriptor for each part, and no handle."""
    batch = BATCHES["segments"]
    arrays = [array for name, array in batch.items() if "length" not in name]
    segment = device.segment(parts=sum(array.nbytes // 4096 + 2 for array in arrays))
    placed, offset = dict(batch), 0
    for name, array in batch.items():
        if "length" not in name:
            placed[name] = segment.put(offset, array)
            offset += -(-array.nbytes // 512) * 512
    with cw.Client(server.address) as client:
        expected = client.correct(method=LOSS, **batch)
    with cw.Client(computing.address, transport="shared_memory") as client:
        assert "cuda_parts" in client.server_info().features
        before = bytes_sent(computing)
        for _ in range(2):
            result = client.correct(method=LOSS, **placed)
        assert bytes_sent(computing) - before < 20_000
        assert device.is_on_device(result.weights)
        assert descriptors(computing) > len(arrays)
        assert result.loss == expected.loss
        assert result.weights.numpy().tobytes() == expected.weights.tobytes()
        del result, placed
    nothing_is_left(computing)


def test_regions_last_as_long_as_their_tensors(computing: ServerProcess, device: FakeCuda) -> None:
    batch = on(device, BATCHES["padded"])
    with cw.Client(computing.address, transport="shared_memory") as client:
        for _ in range(3):
            result = client.correct(method=LOSS, **batch)
        # Five inputs, each in an allocation of its own, and the last three outputs.
        reach(lambda: computing.metric("counterweight_shared_memory_regions"), 5 + 3)
        del result
        batch.pop("advantages")
        gc.collect()
        client.correct(method="token_tis", **SMALL["padded"])
        reach(lambda: descriptors(computing), 4)
    nothing_is_left(computing)


def test_memory_that_is_wrong_is_refused_and_the_batch_goes_another_way(
    computing: ServerProcess, device: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = on(device, BATCHES["padded"])
    with cw.Client(computing.address, transport="shared_memory") as client:
        expected = client.correct(method=LOSS, **batch)
    from counterweight_rl.arrays import cuda

    inner = cuda.allocation_of
    changes: list[dict[str, Any]] = [
        {"size": 1 << 40},
        {"handle": bytes(64)},
    ]
    for change in changes:
        monkeypatch.setattr(cuda, "allocation_of", lambda t, c=change: inner(t)._replace(**c))
        with (
            cw.Client(computing.address, transport="shared_memory") as client,
            pytest.warns(cw.CopyWarning),
        ):
            result = client.correct(method=LOSS, **batch)
        assert_same(result, expected)
    nothing_is_left(computing)


def test_clients_that_are_killed_leave_nothing(
    computing: ServerProcess, folder: pathlib.Path
) -> None:
    path = [REPOSITORY / "client/python", REPOSITORY / "client/python/tests"]
    ended = subprocess.run(
        [
            sys.executable,
            str(pathlib.Path(__file__).with_name("device_clients.py")),
            computing.address,
            f"{folder}/cuda_memory",
            str(CLIENTS),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        stdout=subprocess.PIPE,
        timeout=DEADLINE_SECONDS * 2,
        check=True,
    )
    assert int(ended.stdout) == CLIENTS
    nothing_is_left(computing)
    with cw.Client(computing.address) as client:
        assert np.isfinite(client.correct(method=LOSS, **BATCHES["padded"]).loss or 0.0)
