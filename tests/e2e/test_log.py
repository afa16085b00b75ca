"""The log's destination, and a destination that is not read."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator

import counterweight_rl as cw
import pytest
from batches import padded_batch
from server_process import DEADLINE_SECONDS, ServerProcess

pytestmark = pytest.mark.server_only

StartServer = Callable[..., ServerProcess]

DROPPED = "counterweight_log_lines_dropped_total"
# More lines, one per request, than the server queues for an unread pipe.
REQUESTS = 4500


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe that holds one page, Linux's minimum."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def ask(client: cw.Client, count: int) -> None:
    batch = padded_batch(1, 1)
    for _ in range(count):
        client.correct(method="token_tis", timeout=DEADLINE_SECONDS, **batch)


def stop_at_once(server: ServerProcess) -> None:
    """Sends a second signal, which the first one must not swallow."""
    server.terminate()
    end = time.monotonic() + DEADLINE_SECONDS
    while server.metric("counterweight_ready") == 1:
        assert time.monotonic() < end
    server.terminate()


def read_lines(reading: int) -> list[bytes]:
    """Returns the pipe's content; the other ends are closed or silent."""
    os.set_blocking(reading, False)
    text = b""
    try:
        while part := os.read(reading, 65536):
            text += part
    except BlockingIOError:
        pass
    assert text.endswith(b"\n")
    return text.splitlines()


def test_a_log_that_is_not_read_stops_nothing(
    start_server: StartServer, pipe: tuple[int, int]
) -> None:
    reading, writing = pipe
    server = start_server(stderr=writing)
    with cw.Client(server.address) as client:
        ask(client, REQUESTS)
        assert server.metric("counterweight_ready") == 1
        dropped = server.metric(DROPPED)
        assert dropped > 0
        ask(client, 100)
        assert server.metric(DROPPED) == dropped + 100
    server.terminate()
    assert server.wait() == 0
    # The pipe received only whole lines.
    lines = [json.loads(line) for line in read_lines(reading)]
    assert lines[0]["event"] == "started"
    assert len(lines) > 1
    assert all(line["event"] == "request" for line in lines[1:])


def test_an_exit_in_the_midst_of_work_cuts_no_line(
    start_server: StartServer, pipe: tuple[int, int]
) -> None:
    """A second signal stops the server at once; the log gets one second."""
    reading, writing = pipe
    server = start_server("--drain_delay=600", stderr=writing)
    with cw.Client(server.address) as client:
        ask(client, 100)
    stop_at_once(server)
    assert server.wait() == 0
    lines = [json.loads(line) for line in read_lines(reading)]
    assert lines[0]["event"] == "started"
    assert len(lines) > 1


@pytest.mark.parametrize("at_once", [False, True])
def test_every_line_is_there_in_the_end(start_server: StartServer, at_once: bool) -> None:
    server = start_server(f"--drain_delay={600 if at_once else 0}")
    with cw.Client(server.address) as client:
        ask(client, 300)
        assert server.metric(DROPPED) == 0
    if at_once:
        stop_at_once(server)
    else:
        server.terminate()
    assert server.wait() == 0
    events = [line["event"] for line in server.log_lines() if line["level"] == "info"]
    assert events == ["started", *["request"] * 300, "draining", "stopped"]
