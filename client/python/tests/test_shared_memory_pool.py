"""Regions, and the connection that registers them."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import pathlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from fake_memory import (
    PACKET,
    REGISTER,
    RELEASE,
    FakeMemory,
    Sharing,
    held,
    reach,
)

from counterweight_rl.shared_memory import control as control_module
from counterweight_rl.shared_memory.control import Control, RefusedError
from counterweight_rl.shared_memory.pool import Pool
from counterweight_rl.shared_memory.region import SUPPORTED, Access, Region
from counterweight_rl.shared_memory.registry import UnusableError
from counterweight_rl.status import StatusCode
from counterweight_rl.transport.router import Capabilities, Router
from counterweight_rl.transport.target import read_server

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="memory is shared on Linux only")


class TestPool:
    def test_regions_are_reused_and_bounded(
        self, sharing: Sharing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = Pool(sharing[1].path, 0)
        first = pool.take(Access.READ, 1_000_000)
        pool.give_back(first)
        assert pool.take(Access.READ, 900_000) is first
        pool.give_back(first)
        # Regions of the other access, or much smaller or larger ones.
        others = [
            pool.take(Access.WRITE, 1_000_000),
            pool.take(Access.READ, 1000),
            pool.take(Access.READ, 3_000_000),
        ]
        assert first not in others
        monkeypatch.setattr("counterweight_rl.shared_memory.pool._MOST_FREE_BYTES", 3_500_000)
        for region in others:
            pool.give_back(region)
        assert held() == 2  # the oldest are gone
        pool.close()
        reach(0)

    def test_a_full_server_gets_back_what_is_not_used(self, sharing: Sharing) -> None:
        _, memory = sharing
        pool = Pool(memory.path, 0)
        idle = pool.take(Access.READ, 100)
        pool.handle(idle)
        pool.give_back(idle)
        memory.refuse = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        with pytest.raises(UnusableError, match="the server refuses memory"):
            pool.handle(pool.take(Access.WRITE, 100))
        assert [operation for operation, _, _ in memory.packets] == [
            REGISTER,
            REGISTER,
            RELEASE,
            REGISTER,
        ]
        pool.close()

    def test_a_limit(self, sharing: Sharing) -> None:
        pool = Pool(sharing[1].path, 100_000)
        with pytest.raises(UnusableError, match="more than the server maps"):
            pool.take(Access.READ, 100_001)
        pool.close()

    def test_what_lies_in_a_region(self, sharing: Sharing) -> None:
        pool = Pool(sharing[1].path, 0)
        buffer = pool.make_buffer(Access.READ, mmap.PAGESIZE)
        begin = ctypes.addressof(buffer)
        for offset, size, inside in (
            (0, mmap.PAGESIZE, True),
            (1, mmap.PAGESIZE - 1, True),
            (mmap.PAGESIZE, 0, True),
            (0, mmap.PAGESIZE + 1, False),
            (1, mmap.PAGESIZE, False),
            (-1, 1, False),
        ):
            found = pool.find(begin + offset, size, Access.READ)
            assert (found is not None and found[1] == offset) == inside
            assert pool.find(begin + offset, size, Access.WRITE) is None
        del buffer
        pool.close()
        reach(0)

    def test_what_a_call_holds_ends_after_the_pool(self, sharing: Sharing) -> None:
        pool = Pool(sharing[1].path, 0)
        given_back, discarded = pool.take(Access.READ, 10), pool.take(Access.WRITE, 10)
        for region in (given_back, discarded):
            pool.handle(region)
        pool.close()
        pool.give_back(given_back)
        pool.discard(discarded)
        reach(0)  # mappings and descriptors

    def test_moving_to_another_server(self, sharing: Sharing, tmp_path: pathlib.Path) -> None:
        """Handles belong to one server; another's would be unknown, or wrong."""
        _, first = sharing
        with contextlib.ExitStack() as ends:
            second = FakeMemory(tmp_path / "second")
            ends.callback(second.stop)
            pool = Pool(first.path, 0)
            region = pool.take(Access.READ, 10)
            handle = pool.handle(region)
            pool.move_to(first.path, 0)
            assert pool.handle(region) == handle
            pool.move_to(second.path, 0)
            moved = pool.handle(region)
            assert moved != handle
            assert set(second.regions) == {moved}
            reach(2)  # ours, and the second server's
            assert not first.regions
            pool.give_back(region)
            pool.close()
            reach(0)

    def test_a_closed_router_makes_nothing(self, sharing: Sharing) -> None:
        """With and without an earlier pool."""
        _, memory = sharing
        for used in (False, True):
            router = Router(read_server(sharing[0].target), "shared_memory", 1)
            router.capabilities = Capabilities(socket=memory.path)
            if used:
                router.pool()
            router.close()
            pool = router.pool()
            with pytest.raises(UnusableError, match="the client is closed") as caught:
                pool.take(Access.READ, 10)
            assert caught.value.lasting
            assert held() == 0
        assert memory.connections == 0

    def test_threads(self, sharing: Sharing) -> None:
        pool = Pool(sharing[1].path, 0)
        in_use: set[Region] = set()
        lock = threading.Lock()
        clashes: list[Region] = []

        def work() -> None:
            for number in range(50):
                region = pool.take(Access(1 + number % 2), 1 + 100_000 * (number % 3))
                with lock:
                    if region in in_use:
                        clashes.append(region)
                    in_use.add(region)
                pool.handle(region)
                buffer = pool.make_buffer(Access.READ, 5000)
                with lock:
                    in_use.discard(region)
                pool.give_back(region)
                del buffer

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert clashes == []
        pool.close()
        reach(0)


class Interrupted:
    """A socket, or the poll for it, that a signal interrupts after one method."""

    def __init__(self, real: Any, after: str) -> None:
        self._real = real
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def register(self, *_: Any) -> None:
        pass

    def poll(self, *_: Any) -> bool:
        if self._after == "poll":
            raise KeyboardInterrupt
        return True

    def recv(self, size: int) -> bytes:
        data: bytes = self._real.recv(size)
        if self._after == "recv":
            raise KeyboardInterrupt
        return data


class SlowMemory:
    """Accepts one connection, reads everything, and answers one packet after each pause."""

    def __init__(self, folder: pathlib.Path, pause_seconds: float) -> None:
        self.path = str(folder / "slow")
        self.answered = 0
        self._pause_seconds = pause_seconds
        self._over = threading.Event()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(self.path)
        self._listening.listen()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._listening.close()

    def _run(self) -> None:
        connection, _ = self._listening.accept()
        with connection, contextlib.suppress(BrokenPipeError):
            while not self._over.wait(self._pause_seconds):
                with contextlib.suppress(BlockingIOError):
                    while connection.recv(128, socket.MSG_DONTWAIT):
                        pass
                connection.send(PACKET.pack(b"CWM1", 0, 0, 0, 0, b""))
                self.answered += 1


class TestControl:
    def test_refusals_leave_the_connection(self, sharing: Sharing) -> None:
        _, memory = sharing
        control, region = Control(memory.path), Region(Access.READ, 10)
        memory.refuse = 8
        with pytest.raises(RefusedError, match="RESOURCE_EXHAUSTED: I will not") as caught:
            control.register(region, math.inf)
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        memory.refuse = 0
        handle = control.register(region, math.inf)
        for _ in range(3000):  # more than the socket has room for
            control.release(handle)
            control.pump()
        assert control.register(region, math.inf) != handle
        assert memory.connections == 1
        control.close()
        region.close()

    def test_slow_answers_to_releases_are_within_the_same_patience(
        self, tmp_path: pathlib.Path
    ) -> None:
        with contextlib.ExitStack() as ends:
            memory = SlowMemory(tmp_path, 0.1)
            ends.callback(memory.stop)
            control, region = Control(memory.path), Region(Access.READ, 10)
            ends.callback(control.close)
            ends.callback(region.close)
            releases = 100
            for _ in range(releases):
                control.release(bytes(16))
            with pytest.raises(TimeoutError):
                control.register(region, time.monotonic() + 0.5)
            assert memory.answered < releases  # the registration was never answered

    @pytest.mark.parametrize("after", ["poll", "send_fds", "recv"])
    def test_an_interrupted_packet_is_not_answered_to_another(
        self, sharing: Sharing, monkeypatch: pytest.MonkeyPatch, after: str
    ) -> None:
        """Ctrl-C may arrive at any time; a wrong handle would be another batch's memory."""
        _, memory = sharing
        pool = Pool(memory.path, 0)
        first, second = pool.take(Access.READ, 10), pool.take(Access.WRITE, 10)
        pool.handle(pool.take(Access.READ, 20))
        with monkeypatch.context() as patched:
            if after == "send_fds":
                send = socket.send_fds

                def interrupted(*arguments: Any) -> None:
                    send(*arguments)
                    raise KeyboardInterrupt

                patched.setattr(socket, "send_fds", interrupted)
            else:
                control = pool._registry._control
                assert control is not None
                patched.setattr(control, "_socket", Interrupted(control._socket, after))
                patched.setattr(control_module.select, "poll", lambda: Interrupted(None, after))
            with pytest.raises(KeyboardInterrupt):
                pool.handle(first)
        handle = pool.handle(second)
        assert memory.regions[handle][0] == Access.WRITE
        assert memory.regions[pool.handle(first)][0] == Access.READ
        assert memory.connections == (1 if after == "poll" else 2)
        pool.close()

    def test_a_server_that_says_nothing(
        self, sharing: Sharing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, memory = sharing
        monkeypatch.setattr("counterweight_rl.shared_memory.registry._PATIENCE_SECONDS", 0.05)
        memory.silent = True
        pool = Pool(memory.path, 0)
        region = pool.take(Access.READ, 10)
        for _ in range(2):  # the second one does not wait
            with pytest.raises(UnusableError, match="does not answer in time") as caught:
                pool.handle(region)
            assert caught.value.is_late
            assert not caught.value.lasting
        assert memory.connections == 1
        pool.close()


def refuse(listening: socket.socket, *, reads: bool) -> None:
    """Accepts a client, sends why it is refused, and closes."""
    peer, _ = listening.accept()
    if reads:
        peer.recv(PACKET.size)
    code = StatusCode.PERMISSION_DENIED.value[0]
    peer.send(PACKET.pack(b"CWM1", code, 0, 0, 0, b"") + b"own user's processes only")
    peer.close()


@pytest.fixture
def listening(tmp_path: pathlib.Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.bind(str(tmp_path / "m"))
        made.listen()
        yield made


@pytest.mark.parametrize("reads", [True, False])
def test_a_refusal_counts_though_the_server_closes_at_once(
    listening: socket.socket, reads: bool
) -> None:
    """A server that refuses a user answers its first packet and ends the connection."""

    class Late(Control):
        """Reads once the answer and the end of the connection are both there."""

        def _wait(self, events: int, end: float) -> None:
            refuse(listening, reads=reads)

    with contextlib.closing(Late(listening.getsockname())) as control:
        with pytest.raises(RefusedError, match="own user's processes only"):
            control.register(Region(Access.READ, 1), math.inf)
        with pytest.raises(ConnectionResetError):
            control.pump()


def test_a_refusal_counts_though_nothing_can_be_sent(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes between the client's last look and its first packet."""
    send = socket.send_fds

    def send_late(*packet: Any) -> int:
        refuse(listening, reads=False)
        return send(*packet)

    monkeypatch.setattr(socket, "send_fds", send_late)
    with (
        contextlib.closing(Control(listening.getsockname())) as control,
        pytest.raises(ConnectionRefusedError, match="own user's processes only"),
    ):
        control.register(Region(Access.READ, 1), math.inf)
