"""A server that goes away in the middle of a loop: ``Client(on_unavailable=...)``."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import numpy as np
import pytest
from batches import padded_batch
from server_process import ServerProcess, wait_until
from transports import LOSS, assert_same

ONCE = cw.RetryPolicy(attempts=2, max_pause=0.1)
BATCHES = [padded_batch(20, 100, seed=seed) for seed in range(9)]


@pytest.fixture
def undisturbed(client: cw.Client) -> list[cw.Result[Any]]:
    return [client.correct(method=LOSS, **batch) for batch in BATCHES]


def unmarked(result: cw.Result[Any]) -> cw.Result[Any]:
    return replace(result, backend=result.backend.removeprefix("local:"))


@pytest.fixture
def address() -> Iterator[str]:
    """A socket of the test's own: no other server takes it when its server is gone, as a port."""
    with tempfile.TemporaryDirectory() as folder:
        yield f"unix:{folder}/server"


def is_connected(client: cw.Client) -> bool:
    """Whether the server answers. On a busy machine the first attempt to connect may time out."""
    with contextlib.suppress(cw.UnavailableError):
        client.server_info()
        return True
    return False


def wait_until_back(client: cw.Client) -> cw.Result[Any]:
    """The first answer that is the server's again."""
    deadline = time.monotonic() + 60
    while True:
        result = client.correct(method=LOSS, **BATCHES[0])
        if result.backend == "cpu":
            return result
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("transport", ["unary", "stream"])
@pytest.mark.usefixtures("local_library")
def test_a_loop_survives_its_server(
    start_server: Callable[..., ServerProcess],
    address: str,
    undisturbed: list[cw.Result[Any]],
    transport: Any,
) -> None:
    server = start_server(listen=address)
    with cw.Client(address, retry=ONCE, transport=transport, on_unavailable="local") as client:
        wait_until(lambda: is_connected(client))
        answers = []
        for i, batch in enumerate(BATCHES):
            if i == 3:
                server.stop()
            answers.append(client.correct(method=LOSS, **batch))
        assert [r.backend for r in answers] == ["cpu"] * 3 + ["local:cpu"] * 6
        assert client.fallbacks == {"local": 6}
        for answer, expected in zip(answers, undisturbed, strict=True):
            assert_same(unmarked(answer), expected)
        start_server(listen=address)
        assert_same(wait_until_back(client), undisturbed[0])
        before = client.fallbacks
        assert_same(client.correct(method=LOSS, **BATCHES[1]), undisturbed[1])
        assert client.fallbacks == before


@pytest.mark.usefixtures("local_library")
def test_submitted_and_awaited(address: str, undisturbed: list[cw.Result[Any]]) -> None:
    with cw.Client(address, retry=False, on_unavailable="local") as client:
        futures = [client.submit(method=LOSS, **batch) for batch in BATCHES]
        for future, expected in zip(futures, undisturbed, strict=True):
            assert_same(unmarked(future.result()), expected)

    async def ask() -> None:
        async with cw.aio.Client(address, retry=False, on_unavailable="local") as each:
            answers = await asyncio.gather(*(each.correct(method=LOSS, **b) for b in BATCHES))
            assert each.fallbacks == {"local": len(BATCHES)}
            for answer, expected in zip(answers, undisturbed, strict=True):
                assert_same(unmarked(answer), expected)

    asyncio.run(ask())


@pytest.mark.usefixtures("local_library")
def test_a_wrong_request_is_wrong_here_too(address: str) -> None:
    with cw.Client(address, retry=False, on_unavailable="local") as client:
        with pytest.raises(cw.InvalidRequestError, match="token_ts"):
            client.correct(method="token_ts", **BATCHES[0])
        assert client.fallbacks == {"local": 0}
        with pytest.raises(cw.UnavailableError):
            client.server_info()


@pytest.mark.usefixtures("local_library")
def test_a_declared_run_stays_declared(address: str) -> None:
    sentence = "run 'a' declares token_tis; this batch was corrected by icepop"
    with cw.Client(address, on_unavailable="local", retry=ONCE) as client:
        server = ServerProcess(listen=address)
        try:
            wait_until(lambda: is_connected(client))
            client.declare_run("token_tis", run="a")
            there = client.correct(method="icepop", run="a", **BATCHES[0])
        finally:
            server.stop()
        here = client.correct(method="icepop", run="a", **BATCHES[0])
    assert sentence in there.warnings
    assert here.warnings == there.warnings
    assert here.backend == "local:cpu"


def test_identity(address: str) -> None:
    batch = dict(BATCHES[0])
    batch.pop("advantages", None)
    with cw.Client(address, retry=False, on_unavailable="identity") as client:
        result = client.correct(method="token_tis", **batch)
        assert (result.backend, result.metrics, result.loss) == ("identity", {}, None)
        assert result.keep_mask.dtype == batch["response_mask"].dtype
        np.testing.assert_array_equal(result.keep_mask, batch["response_mask"])
        np.testing.assert_array_equal(result.weights, batch["response_mask"].astype(np.float32))
        assert result.warnings
        assert client.fallbacks == {"identity": 1}
        with pytest.raises(cw.UnavailableError):
            client.correct(method=LOSS, **BATCHES[0])
        assert client.fallbacks == {"identity": 1}


def test_raise_is_the_default(address: str) -> None:
    with cw.Client(address, retry=False) as client:
        with pytest.raises(cw.UnavailableError):
            client.correct(method="token_tis", **BATCHES[0])
        assert client.fallbacks == {}


def test_no_such_choice() -> None:
    with pytest.raises(ValueError, match=r"on_unavailable must be one of .*did you mean 'local'"):
        cw.Client("localhost:1", on_unavailable="locale")  # type: ignore[arg-type]
