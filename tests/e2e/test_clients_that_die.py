"""Hundreds of clients killed at random points leave nothing behind."""

from __future__ import annotations

import os
import pathlib
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

import counterweight_rl as cw
import pytest
from batches import padded_batch
from server_process import DEADLINE_SECONDS, ServerProcess, binary

CLIENTS = 500
AT_ONCE = 8
# After this many clients the server has all buffers that it keeps.
FIRST = 100
# malloc's slack; the payloads are 5 MB each.
SLACK_BYTES = 64 << 20
ANSWERED = 'counterweight_requests_total{code="OK",method="CorrectStream"}'
CANCELLED = 'counterweight_requests_total{code="CANCELLED",method="CorrectStream"}'
STATE = (
    "counterweight_requests_in_flight",
    "counterweight_requests_queued",
    "counterweight_admitted_bytes",
    "counterweight_staging_used_bytes",
    "counterweight_staging_free_bytes",
    "counterweight_shared_memory_regions",
    "counterweight_shared_memory_bytes",
)


@pytest.fixture
def server(start_server: Callable[..., ServerProcess]) -> Iterator[ServerProcess]:
    # A socket's path has at most 107 bytes, and pytest's folders are deep.
    with tempfile.TemporaryDirectory(prefix="cw") as folder:
        yield start_server(
            f"--shared_memory_socket={folder}/memory",
            "--log_level=warning",
            listen=f"unix:{folder}/server",
        )


def open_files(server: ServerProcess, at_most: int = 0) -> int:
    """Returns the number of open files, at most `at_most` unless the deadline has passed.

    A connection outlives its last request, also that for the metrics.
    """
    end = time.monotonic() + DEADLINE_SECONDS
    while True:
        count = len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()))
        if count <= at_most or not at_most or time.monotonic() > end:
            return count


def threads(server: ServerProcess) -> int:
    return len(list(pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()))


def idle(server: ServerProcess) -> dict[str, float]:
    """Returns the server's state when no client's resources remain, or at the deadline."""
    end = time.monotonic() + DEADLINE_SECONDS
    while True:
        state = {name: server.metric(name) for name in STATE}
        if not any(state.values()) or time.monotonic() > end:
            return state


def kill_clients(server: ServerProcess, count: int, longest: float, chance: random.Random) -> None:
    """Kills each client at a random time up to `longest` seconds after its start."""
    bench = binary().parent / "counterweight-bench"
    started = 0
    running: list[tuple[float, subprocess.Popen[bytes]]] = []
    while started < count or running:
        while started < count and len(running) < AT_ONCE:
            flags = ("--sequences=256", "--length=1024", "--warmup=0", "--duration=600")
            ways = (("--transport=stream",), ("--transport=shared_memory", "--allocate"))
            process = subprocess.Popen(
                [str(bench), f"--target={server.address}", *ways[started % 2], *flags],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            running.append((time.monotonic() + chance.uniform(0, longest), process))
            started += 1
        running.sort(key=lambda entry: entry[0])
        end, process = running.pop(0)
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.server_only
@pytest.mark.timeout(600)
def test_killed_clients_leave_nothing(server: ServerProcess) -> None:
    chance = random.Random(1)
    # About three batches on a fast machine; on a busy one, as long as it takes until some have an
    # answer.
    longest = 0.15
    kill_clients(server, FIRST, longest, chance)
    while not server.count(ANSWERED):
        longest *= 2
        kill_clients(server, FIRST, longest, chance)
    assert not any(idle(server).values()), idle(server)
    tasks, files, memory = (
        threads(server),
        open_files(server),
        server.metric("process_resident_memory_bytes"),
    )
    kill_clients(server, CLIENTS - FIRST, longest, chance)
    assert not any(idle(server).values()), idle(server)
    assert open_files(server, at_most=files) <= files
    # gRPC's two executors start up to two threads per core each on demand.
    assert threads(server) <= tasks + 4 * (os.cpu_count() or 1)
    assert server.metric("process_resident_memory_bytes") <= memory + SLACK_BYTES
    assert server.metric(CANCELLED)
    with cw.Client(server.address) as client:
        assert client.correct(method="token_tis", **padded_batch()).metrics
