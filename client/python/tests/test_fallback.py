"""``on_unavailable`` without a real server: the answers, and the number of calls to the server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest
from fake_server import FakeServer, failing, in_turn, retry_info
from sample import BATCH, answer, correct

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl.arrays import framing
from counterweight_rl.transport import fallback, unary

AWAY = failing(grpc.StatusCode.UNAVAILABLE, "away", retry_info(1))
FULL = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(1))
QUICK = cw.RetryPolicy(attempts=3, seed=1)


class FakeLibrary:
    """Answers like the fake server, with another number."""

    numerics_version = 7

    def __init__(self, *_: object) -> None:
        pass

    def run(self, call: Any, timeout: float | None, stop: Any) -> cw.Result[Any]:
        response = answer(framing.to_request(call.correction.request()), None)
        response.numerics_version = self.numerics_version
        result: cw.Result[Any] = unary.decode(call.correction, response.SerializeToString())
        return result

    def end_calls(self) -> None:
        pass


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> type[FakeLibrary]:
    monkeypatch.setattr(fallback, "LocalCalls", FakeLibrary)
    return FakeLibrary


@pytest.mark.usefixtures("library")
def test_the_library_answers_with_the_servers_numbers_only(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.handler = in_turn(answer, AWAY)
    with cw.Client(server.target, timeout=30, retry=QUICK, on_unavailable="local") as client:
        first = correct(client, request_id="mine")
        second = correct(client, request_id="mine")
        assert second.backend == "local:cpu"
        assert replace(second, backend="cpu").metrics == first.metrics
        assert client.fallbacks == {"local": 1}
        monkeypatch.setattr(FakeLibrary, "numerics_version", 8)
        with pytest.raises(cw.UnavailableError, match="numerics_version is 8 and the server's 7"):
            correct(client)
        assert client.fallbacks == {"local": 1}


@pytest.mark.usefixtures("library")
def test_the_servers_numbers_are_those_of_its_last_answer(server: FakeServer) -> None:
    """A server is replaced by another version while its client lives."""

    def newer(request: Any, context: Any) -> Any:
        response = answer(request, context)
        response.numerics_version = 8
        return response

    server.handler = in_turn(answer, newer, AWAY)
    with cw.Client(server.target, timeout=30, retry=QUICK, on_unavailable="local") as client:
        correct(client)
        correct(client)
        with pytest.raises(cw.UnavailableError, match="numerics_version is 7 and the server's 8"):
            correct(client)
        server.handler = in_turn(answer, AWAY)
        correct(client)
        assert correct(client).backend == "local:cpu"


def test_the_library_has_what_is_left_of_the_calls_time(
    server: FakeServer, library: type[FakeLibrary], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = []
    run = library.run

    def timed(self: Any, call: Any, timeout: float, stop: Any) -> Any:
        seconds.append(timeout)
        return run(self, call, timeout, stop)

    async def use() -> None:
        async with counterweight_rl.aio.Client(
            server.target, timeout=30, retry=QUICK, on_unavailable="local"
        ) as client:
            await client.correct(**BATCH)
            await client.correct(**BATCH, timeout=20)

    monkeypatch.setattr(library, "run", timed)
    server.handler = AWAY
    with cw.Client(server.target, timeout=30, retry=QUICK, on_unavailable="local") as client:
        correct(client)
        correct(client, timeout=20)
    asyncio.run(asyncio.wait_for(use(), 30))
    for left, whole in zip(seconds, [30, 20, 30, 20], strict=True):
        assert 0 < left < whole


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("choice", ["local", "identity"])
def test_a_server_that_is_away_is_asked_once(server: FakeServer, choice: Any) -> None:
    """Its first absence is worth all attempts, and so is the first one after its return."""
    server.handler = AWAY
    with cw.Client(server.target, timeout=30, retry=QUICK, on_unavailable=choice) as client:
        for attempts in (3, 1, 1):
            before = len(server.requests)
            correct(client)
            assert len(server.requests) == before + attempts
        server.handler = answer
        assert correct(client).backend == "cpu"
        server.handler = AWAY
        before = len(server.requests)
        correct(client)
        assert len(server.requests) == before + 3
        assert client.fallbacks == {choice: 4}


def test_an_asyncio_client_asks_a_server_that_is_away_once(server: FakeServer) -> None:
    async def asked(client: counterweight_rl.aio.Client, backend: str) -> int:
        before = len(server.requests)
        assert (await client.correct(**BATCH)).backend == backend
        return len(server.requests) - before

    async def use() -> None:
        async with counterweight_rl.aio.Client(
            server.target, timeout=30, retry=QUICK, on_unavailable="identity"
        ) as client:
            server.handler = AWAY
            assert [await asked(client, "identity") for _ in range(3)] == [3, 1, 1]
            server.handler = answer
            assert await asked(client, "cpu") == 1
            server.handler = AWAY
            assert await asked(client, "identity") == 3

    asyncio.run(asyncio.wait_for(use(), 30))


@pytest.mark.usefixtures("library")
def test_an_asyncio_client_knows_the_servers_numbers(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        async with counterweight_rl.aio.Client(
            server.target, timeout=30, retry=QUICK, on_unavailable="local"
        ) as client:
            await client.correct(**BATCH)
            with pytest.raises(cw.UnavailableError, match="is 8 and the server's 7"):
                await client.correct(**BATCH)

    monkeypatch.setattr(FakeLibrary, "numerics_version", 8)
    server.handler = in_turn(answer, AWAY)
    asyncio.run(asyncio.wait_for(use(), 30))


def test_each_absence_is_told_once(server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    """In the words of an operator who reads the log: when it began, when it was over."""
    with cw.Client(server.target, timeout=30, retry=QUICK, on_unavailable="identity") as client:
        for handler in (answer, AWAY, AWAY, answer, answer, AWAY, answer):
            server.handler = handler
            correct(client)
        # Other calls fail, and are no second answer.
        server.inform = AWAY
        with pytest.raises(cw.UnavailableError):
            client.server_info()
        assert client.fallbacks == {"identity": 3}
    told = [each.message for each in caplog.records]
    assert (
        told
        == [
            'the server is away, on_unavailable="identity": away',
            "the server is back",
        ]
        * 2
    )


def test_a_server_that_is_back_but_full_is_tried_again(server: FakeServer) -> None:
    """Only its absence is not worth a pause."""
    with cw.Client(server.target, timeout=30, retry=QUICK, on_unavailable="identity") as client:
        server.handler = AWAY
        assert correct(client).backend == "identity"
        server.handler = in_turn(FULL, FULL, answer)
        assert correct(client).backend == "cpu"
