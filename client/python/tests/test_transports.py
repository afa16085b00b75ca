"""The choice of the transport."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest
from fake_server import FakeServer, failing, in_turn, retry_info
from sample import MASK, OLD, ROLLOUT, Request, Response

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl.shared_memory.region import SUPPORTED
from counterweight_rl.transport.router import SMALL_BYTES, Capabilities, Router
from counterweight_rl.transport.target import read_server

SMALL: dict[str, Any] = {
    "rollout_log_probs": ROLLOUT,
    "old_log_probs": OLD,
    "response_mask": MASK,
    "method": "token_tis",
}
LARGE = {
    **SMALL,
    **{name: np.tile(SMALL[name], (1, SMALL_BYTES // 50)) for name in list(SMALL)[:3]},
}


def small_answer(request: Request, context: Any) -> Response:
    return Response(request_id=request.request_id)


def ways(server: FakeServer) -> tuple[int, int]:
    """Returns the numbers of unary and streamed batches."""
    return len(server.requests) - len(server.headers), len(server.headers)


def test_small_batches_ask_nobody(streaming: FakeServer, client: cw.Client) -> None:
    for _ in range(3):
        client.correct(**SMALL)
    assert ways(streaming) == (3, 0)
    assert streaming.infos == 0


def test_large_ones_go_in_chunks_where_there_are_any(
    streaming: FakeServer, client: cw.Client
) -> None:
    for _ in range(3):
        client.correct(**LARGE)
    assert ways(streaming) == (0, 3)
    assert streaming.infos == 1


def test_an_older_server_gets_one_message(server: FakeServer, client: cw.Client) -> None:
    client.correct(**LARGE)
    assert ways(server) == (1, 0)


def test_a_server_that_does_not_even_know_the_question(
    server: FakeServer, client: cw.Client
) -> None:
    server.inform = failing(grpc.StatusCode.UNIMPLEMENTED, "what?")
    client.correct(**LARGE)
    assert ways(server) == (1, 0)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "aio"])
def test_an_older_server_behind_the_same_address(streaming: FakeServer, asynchronous: bool) -> None:
    streaming.admit = failing(grpc.StatusCode.UNIMPLEMENTED, "no streams here")

    async def use() -> None:
        async with counterweight_rl.aio.Client(streaming.target) as aio:
            for _ in range(2):
                await aio.correct(**LARGE)

    if asynchronous:
        asyncio.run(use())
    else:
        with cw.Client(streaming.target) as client:
            for _ in range(2):
                client.correct(**LARGE)
    assert (len(streaming.headers), len(streaming.requests)) == (1, 2)
    with (
        cw.Client(streaming.target, transport="stream") as client,
        pytest.raises(cw.CounterweightError, match="no streams here") as caught,
    ):
        client.correct(**LARGE)
    assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED


def test_the_question_is_tried_again_too(streaming: FakeServer) -> None:
    draining = failing(grpc.StatusCode.UNAVAILABLE, "draining", retry_info(1))
    streaming.inform = in_turn(draining, lambda *_: streaming.info)  # type: ignore[arg-type,return-value]
    with cw.Client(streaming.target, retry=cw.RetryPolicy(seed=1)) as client:
        client.correct(**LARGE)
    assert ways(streaming) == (0, 1)
    assert streaming.infos == 2


def test_another_server_is_asked_anew(streaming: FakeServer) -> None:
    draining = failing(grpc.StatusCode.UNAVAILABLE, "draining", retry_info(1))
    with cw.Client(streaming.target, retry=cw.RetryPolicy(seed=1)) as client:
        client.correct(**LARGE)
        streaming.admit = in_turn(draining, lambda *_: None)  # type: ignore[arg-type,return-value]
        client.correct(**LARGE)
    assert streaming.infos == 2


@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_the_callers_choice(streaming: FakeServer, transport: Any) -> None:
    with cw.Client(streaming.target, transport=transport) as client:
        client.correct(**SMALL)
        client.correct(**LARGE)
    assert ways(streaming) == ((2, 0) if transport == "unary" else (0, 2))


def test_a_server_may_want_smaller_chunks(streaming: FakeServer) -> None:
    streaming.info.limits.max_chunk_bytes = 1000
    with cw.Client(streaming.target, transport="stream", chunk_bytes=4000) as client:
        batch = {**SMALL, **{n: np.tile(SMALL[n], (1, 500)) for n in list(SMALL)[:3]}}
        client.correct(**batch)
    assert max(size for _, _, size in streaming.chunks) == 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"transport": "pigeon"}, "transport must be one of auto, unary, stream, shared_memory"),
        ({"chunk_bytes": 0}, "chunk_bytes must be from 1 to 16777216; got 0"),
        ({"chunk_bytes": (16 << 20) + 1}, "chunk_bytes must be from 1 to"),
    ],
)
def test_wrong_choices(arguments: dict[str, Any], message: str) -> None:
    for client in (cw.Client, counterweight_rl.aio.Client):
        with pytest.raises(ValueError, match=message):
            client("localhost:1", **arguments)


@pytest.mark.skipif(not SUPPORTED, reason="memory is shared on Linux only")
@pytest.mark.parametrize(
    ("target", "num_bytes", "capabilities", "way"),
    [
        ("unix:/s", SMALL_BYTES, Capabilities(True, 0, "/m"), "shared_memory"),
        ("unix:///s", SMALL_BYTES, Capabilities(False, 0, "/m"), "shared_memory"),
        ("unix:/s", SMALL_BYTES - 1, Capabilities(True, 0, "/m"), "unary"),
        ("unix:/s", SMALL_BYTES, Capabilities(True), "stream"),
        ("unix:/s", SMALL_BYTES, Capabilities(), "unary"),
        # A path of another machine is meaningless here.
        ("host:1", SMALL_BYTES, Capabilities(True, 0, "/m"), "stream"),
    ],
)
def test_choices(target: str, num_bytes: int, capabilities: Capabilities, way: str) -> None:
    router = Router(read_server(target), "auto", 1)
    router.capabilities = capabilities
    assert router.choose(num_bytes) == way


def test_every_call_says_whose_it_is(streaming: FakeServer, client: cw.Client) -> None:
    client.correct(**SMALL)
    client.correct(**LARGE)
    with cw.Client(streaming.target) as other:
        other.correct(**SMALL)
    first, second, third = (m["counterweight-client"] for m in streaming.metadata)
    assert first == second != third


def test_info_of_shared_memory(server: FakeServer, client: cw.Client) -> None:
    server.info = service_pb2.GetServerInfoResponse(
        features=["shared_memory"],
        shared_memory_socket="/m",
        limits=service_pb2.Limits(max_chunk_bytes=1, max_bytes_in_flight=2),
    )
    info = client.server_info()
    assert info.shared_memory_socket == "/m"
    assert (info.limits.max_chunk_bytes, info.limits.max_bytes_in_flight) == (1, 2)
