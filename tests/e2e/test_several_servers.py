"""A target with several servers, like a headless Service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import counterweight_rl as cw
import pytest
from batches import padded_batch
from counterweight_rl import aio
from server_process import DEADLINE_SECONDS, ServerProcess

pytestmark = pytest.mark.server_only

CALLS = 8


def corrected(server: ServerProcess) -> float:
    return server.count("counterweight_tokens_total")


def test_calls_take_turns_and_survive_a_server(start_server: Callable[..., ServerProcess]) -> None:
    servers = [start_server(), start_server()]
    target = "ipv4:" + ",".join(server.address for server in servers)
    batch = padded_batch()

    async def by_asyncio() -> None:
        async with aio.Client(target) as client:
            for _ in range(CALLS):
                await client.correct(method="token_tis", **batch)

    with cw.Client(target) as client:
        first = client.correct(method="token_tis", **batch)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not all(corrected(server) for server in servers):
            assert time.monotonic() < deadline, "one server gets all calls"
            client.correct(method="token_tis", **batch)
        before = [corrected(server) for server in servers]
        asyncio.run(by_asyncio())
        assert all(corrected(server) > count for server, count in zip(servers, before, strict=True))
        servers[0].process.kill()
        servers[0].wait()
        for _ in range(CALLS):
            result = client.correct(method="token_tis", **batch)
            assert result.weights.tobytes() == first.weights.tobytes()
