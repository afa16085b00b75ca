from __future__ import annotations

import contextlib
import math
import os
import pathlib
import socket
import tempfile
import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from counterweight_rl.transport import write_watchdog
from counterweight_rl.transport.target import read_server

SECONDS = 20.0  # an ample bound


class Pair:
    """A connection over a Unix socket, as gRPC has it: the client's end does not block."""

    def __init__(self, path: str) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            self.client = socket.socket(socket.AF_UNIX)
            self.client.connect(path)
            self.server, _ = listener.accept()
        self.client.setblocking(False)

    def fill(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.client.send(bytes(65536))

    def is_open(self) -> bool:
        try:
            self.client.send(b"x")
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return True

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory() as name:  # a socket's path has 107 bytes at most
        yield pathlib.Path(name)


@pytest.fixture
def pairs(folder: pathlib.Path) -> Iterator[list[Pair]]:
    made = [Pair(str(folder / name)) for name in ("stalled", "other", "moving")]
    yield made
    for pair in made:
        pair.close()


def peer_of(target: str) -> write_watchdog.Peer:
    return write_watchdog.Peer(read_server(target))


def entries_of(name: str) -> list[write_watchdog._Entry]:
    entries = list(write_watchdog._watch._entries.values())
    return [entry for entry in entries if entry.address.endswith(name.encode())]


def refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def await_end(pair: Pair) -> None:
    end = time.monotonic() + SECONDS
    while pair.is_open():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_only_full_connections_to_the_address_are_ended(
    folder: pathlib.Path, pairs: list[Pair]
) -> None:
    full, other, moving = pairs
    full.fill()
    other.fill()
    write_watchdog.end_stalled(os.fsencode(folder / "stalled"))
    write_watchdog.end_stalled(os.fsencode(folder / "moving"))
    assert not full.is_open()
    assert other.is_open()
    assert moving.is_open()


class EndedError(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


def test_a_call_beyond_its_deadline_ends_its_connection(
    folder: pathlib.Path, pairs: list[Pair]
) -> None:
    pairs[0].fill()
    with peer_of(f"unix:{folder / 'stalled'}").bounds(0.01):
        await_end(pairs[0])


@pytest.mark.parametrize("code", [grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED])
def test_a_call_that_ended_early_leaves_no_stuck_connection(
    folder: pathlib.Path, pairs: list[Pair], code: grpc.StatusCode
) -> None:
    pairs[0].fill()
    with (
        contextlib.suppress(EndedError),
        peer_of(f"unix:{folder / 'stalled'}").bounds(None),
    ):
        raise EndedError(code)
    await_end(pairs[0])
    # The thread has removed what it did, before it ended the connection.
    assert not entries_of("stalled")


def test_calls_that_ended_are_forgotten(folder: pathlib.Path) -> None:
    peer = peer_of(f"unix:{folder / 'gone'}")
    with peer.bounds(60):
        (mine,) = entries_of("gone")
        assert mine.due < math.inf
    with contextlib.suppress(EndedError), peer.bounds(60):
        raise EndedError(grpc.StatusCode.INVALID_ARGUMENT)
    peer.closes()  # no call runs
    assert not entries_of("gone")


def test_a_thread_that_cannot_start_leaves_nothing(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = write_watchdog._Watch()
    with monkeypatch.context() as patched:
        patched.setattr(write_watchdog.threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            watch.add(b"a", 0.0)
    assert not watch._entries
    pair = Pair(str(folder / "later"))
    pair.fill()
    watch.add(os.fsencode(folder / "later"), 0.0, once=True)
    await_end(pair)
    pair.close()


def test_a_forked_child_has_a_thread_of_its_own(folder: pathlib.Path, pairs: list[Pair]) -> None:
    pairs[0].fill()
    with peer_of(f"unix:{folder / 'other'}").bounds(60):
        child = os.fork()
        if child == 0:
            with peer_of(f"unix:{folder / 'stalled'}").bounds(0.01):
                end = time.monotonic() + SECONDS
                while pairs[0].is_open() and time.monotonic() < end:
                    time.sleep(0.01)
            os._exit(0 if not pairs[0].is_open() else 1)
        assert os.waitpid(child, 0)[1] == 0
