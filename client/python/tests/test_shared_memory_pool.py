"""Regions, and the connection that lends them."""

from __future__ import annotations

import threading

import grpc
import pytest
from fake_memory import REGISTER, RELEASE, Sharing, held, reach

from counterweight.shared_memory.control import Control, RefusedError
from counterweight.shared_memory.pool import Pool, UnusableError
from counterweight.shared_memory.region import SUPPORTED, Access, Region

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
        # Of the other kind, or much smaller, or larger.
        others = [
            pool.take(Access.WRITE, 1_000_000),
            pool.take(Access.READ, 1000),
            pool.take(Access.READ, 3_000_000),
        ]
        assert first not in others
        monkeypatch.setattr("counterweight.shared_memory.pool._MOST_FREE_BYTES", 3_500_000)
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


class TestControl:
    def test_refusals_leave_the_connection(self, sharing: Sharing) -> None:
        _, memory = sharing
        control, region = Control(memory.path), Region(Access.READ, 10)
        memory.refuse = 8
        with pytest.raises(RefusedError, match="RESOURCE_EXHAUSTED: I will not") as caught:
            control.register(region)
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        memory.refuse = 0
        handle = control.register(region)
        for _ in range(300):  # nobody reads the answers
            control.release(handle)
        assert control.register(region) != handle
        assert memory.connections == 1
        control.close()
        region.close()

    def test_a_server_that_says_nothing(
        self, sharing: Sharing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, memory = sharing
        monkeypatch.setattr("counterweight.shared_memory.control._SECONDS", 0.05)
        memory.silent = True
        pool = Pool(memory.path, 0)
        with pytest.raises(UnusableError, match=r"the shared-memory socket: .*timed out"):
            pool.handle(pool.take(Access.READ, 10))
        assert memory.connections == 2
        pool.close()
