"""Memory that client and server share: its users, and its release."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import re
import time
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import grpc
import numpy as np
import pytest
from server_process import DEADLINE_SECONDS, ServerProcess, wait_until
from transports import LARGE, LOSS, SMALL, assert_same


def test_the_way_is_chosen_by_size(sharing: ServerProcess) -> None:
    def count(rpc: str) -> float:
        return sharing.count(f'counterweight_requests_total{{code="OK",method="{rpc}"}}')

    def used(client: cw.Client, batch: dict[str, Any]) -> str:
        unary, streams, shared = count("Correct"), count("CorrectStream"), regions(sharing)
        client.correct(method=LOSS, **batch)
        # The server counts a call once it has ended there.
        wait_until(lambda: count("Correct") + count("CorrectStream") > unary + streams)
        if count("CorrectStream") > streams:
            return "stream"
        assert count("Correct") == unary + 1
        return "shared_memory" if regions(sharing) > shared else "unary"

    reach(lambda: regions(sharing), 0)
    with cw.Client(sharing.address) as client:
        assert used(client, SMALL["padded"]) == "unary"
        assert used(client, LARGE["wide"]) == "shared_memory"
    with cw.Client(sharing.address, transport="stream") as client:
        assert used(client, LARGE["wide"]) == "stream"


def regions(server: ServerProcess) -> int:
    """Returns the number of regions registered with the server."""
    maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
    return len(re.findall("memfd:counterweight", maps))


def reach(value: Callable[[], int], limit: int) -> None:
    """Waits until the value is at most the limit: the server notices a closed connection later."""
    end = time.monotonic() + DEADLINE_SECONDS
    while value() > limit:
        assert time.monotonic() < end, f"{value()} instead of {limit}"


def test_without_shared_memory(server: ServerProcess) -> None:
    """Over TCP the client uses chunks and ordinary arrays; an insisting client gets an error."""
    with cw.Client(server.address) as client:
        array = client.empty((3, 4), np.float32)
        assert array.shape == (3, 4)
        assert client.correct(method=LOSS, **LARGE["wide"]).timing.receive_seconds > 0
    with (
        cw.Client(server.address, transport="shared_memory") as client,
        pytest.raises(cw.CounterweightError, match="transport='shared_memory' is not") as caught,
    ):
        client.correct(method=LOSS, **SMALL["padded"])
    assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION


def test_a_server_that_comes_back(
    start_server: Callable[..., ServerProcess], folder: pathlib.Path
) -> None:
    """Memory is registered anew, also that of existing arrays."""
    listen = f"unix:{folder}/restarted"
    flags = (f"--shared_memory_socket={folder}/restarted_memory",)
    server = start_server(*flags, listen=listen)
    batch = LARGE["wide"]
    patient = cw.RetryPolicy(attempts=100, seed=1)
    with cw.Client(server.address, transport="shared_memory", retry=patient) as client:
        shared = client.empty(batch["old_log_probs"].shape)
        shared[...] = batch["old_log_probs"]
        first = client.correct(method=LOSS, **{**batch, "old_log_probs": shared})
        server.stop()
        server = start_server(*flags, listen=listen)
        assert_same(client.correct(method=LOSS, **{**batch, "old_log_probs": shared}), first)
        assert regions(server) == 3  # the array, the copies, the outputs
    # Without shared memory, the same client continues in chunks.
    with cw.Client(server.address, retry=patient) as client:
        assert_same(client.correct(method=LOSS, **batch), first)
        server.stop()
        server = start_server(listen=listen)
        result = client.correct(method=LOSS, **batch)
        assert_same(result, first)
        assert result.timing.receive_seconds > 0


def held() -> tuple[int, int]:
    """Returns the numbers of descriptors and mappings of shared memory in this process."""
    descriptors = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            descriptors += "memfd:counterweight" in os.readlink(f"/proc/self/fd/{name}")
    maps = pathlib.Path("/proc/self/maps").read_text()
    return descriptors, len(re.findall("memfd:counterweight", maps))


def test_nothing_is_left(sharing: ServerProcess) -> None:
    gc.collect()
    assert held() == (0, 0)
    with cw.Client(sharing.address) as client:
        client.server_info()  # grpc opens some descriptors once and keeps them
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with cw.Client(sharing.address) as client:
            arrays = [client.empty((64, 1000)) for _ in range(4)]
            assert held()[1] == 4
            part = arrays[0][3:7]
            del arrays
            assert held()[1] == 1  # a view still uses it
            futures = [client.submit(method=LOSS, **LARGE["wide"]) for _ in range(6)]
            assert len({future.result(DEADLINE_SECONDS).loss for future in futures}) == 1
            part[...] = 3
        assert (part == 3).all()  # memory in use stays
        del part
        assert held() == (0, 0)
    reach(lambda: len(os.listdir("/proc/self/fd")), before)
    reach(lambda: regions(sharing), 0)


def test_a_batch_too_large_to_share_goes_in_chunks(
    start_server: Callable[..., ServerProcess], folder: pathlib.Path
) -> None:
    server = start_server(
        f"--shared_memory_socket={folder}/little_memory",
        "--max_shared_memory_bytes=1000000",
        listen=f"unix:{folder}/little",
    )
    with cw.Client(server.address) as client:
        result = client.correct(method=LOSS, **LARGE["wide"])
        assert result.timing.receive_seconds > 0
        assert client.empty(10_000_000).shape == (10_000_000,)
    with cw.Client(server.address, transport="unary") as client:
        assert_same(client.correct(method=LOSS, **LARGE["wide"]), result)
