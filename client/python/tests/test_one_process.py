"""Clients belong to one process and one event loop; a refusal has one traceback."""

from __future__ import annotations

import asyncio
import copy
import pathlib
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer, bad_request, failing, in_turn
from grpc import StatusCode
from sample import BATCH, answer, correct

import counterweight_rl as cw
from counterweight_rl import aio
from counterweight_rl.transport.publisher import open_publisher

PACKAGE = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("make", [cw.Client, aio.Client], ids=["sync", "aio"])
@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_client_says_where_to_make_it(
    make: Callable[[str], Any], take: Callable[[Any], Any]
) -> None:
    client = make("localhost:1")
    for held in (client, {"client": client}):
        if take is copy.copy and held is not client:
            continue
        with pytest.raises(
            TypeError, match=r"Client cannot be pickled .*: make one where it is used"
        ):
            take(held)


def test_a_publisher_says_so_too() -> None:
    sender = open_publisher("localhost:1", None, None, None, False)
    assert sender is not None
    with pytest.raises(TypeError, match="Publisher cannot be pickled"):
        pickle.dumps(sender)
    sender.close()


def test_settings_can_be_sent_to_where_the_client_is_made() -> None:
    for settings in (
        cw.RetryPolicy(attempts=3, max_pause=np.float32(1)),
        cw.TlsConfig(root_certificates=pathlib.Path("ca.pem"), private_key=b"k"),
    ):
        assert pickle.loads(pickle.dumps(settings)) == settings


def test_a_second_event_loop_is_named(server: FakeServer) -> None:
    server.handler = answer
    client = aio.Client(server.target, timeout=30)

    async def use() -> None:
        await client.correct(**BATCH)

    async def close() -> None:
        await client.close()
        await client.close()

    asyncio.run(use())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="another one: make a client in each loop"):
            asyncio.run(use())
    asyncio.run(close())
    with pytest.raises(cw.CounterweightError, match="the client is closed"):
        asyncio.run(use())
    assert len(server.requests) == 1


def test_the_end_of_python() -> None:
    """A call of ``__del__`` is too late; closing is not."""
    program = """
import sys
import counterweight_rl as cw
import counterweight_rl.aio

class Trainer:
    def __init__(self):
        self.client = cw.Client("localhost:1", timeout=5)

    def __del__(self):
        for call in (
            self.client.server_info,
            self.client.list_methods,
            self.correct,
            lambda: cw.Client("localhost:1"),
            lambda: cw.Client("local:"),
            lambda: counterweight_rl.aio.Client("localhost:1"),
        ):
            try:
                call()
            except cw.CounterweightError as error:
                print(error.code.name, error)
        self.client.close()

    def correct(self):
        self.client.correct(response_mask=[[1]], method="token_tis")

sys.modules["kept until the very end"] = Trainer()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines == 6 * [lines[0]]
    assert lines[0].startswith("FAILED_PRECONDITION Python is ending")


def raised(call: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return caught.value


def run(client: aio.Client) -> None:
    async def main() -> None:
        async with client:
            await client.correct(**BATCH)

    asyncio.run(main())


def closed(client: cw.Client) -> cw.Client:
    client.close()
    return client


def used_and_closed(client: cw.Client) -> cw.Client:
    with client:
        correct(client)
    return client


@pytest.mark.parametrize("transport", ["unary", "stream"])
@pytest.mark.parametrize(
    "handler",
    [
        bad_request("labels.run"),
        failing(StatusCode.RESOURCE_EXHAUSTED, "full"),
        failing(StatusCode.UNAVAILABLE, "draining"),
        failing(StatusCode.DEADLINE_EXCEEDED, "late"),
        failing(StatusCode.INTERNAL, "broken"),
        failing(StatusCode.CANCELLED, "ending"),
    ],
)
def test_a_refusal_has_one_traceback(streaming: FakeServer, handler: Any, transport: Any) -> None:
    streaming.handler = handler
    settings: dict[str, Any] = {"timeout": 30, "transport": transport, "retry": False}
    with cw.Client(streaming.target, **settings) as client:
        errors = [
            raised(lambda: correct(client)),
            raised(client.submit(**BATCH).result),
            raised(lambda: run(aio.Client(streaming.target, **settings))),
        ]
    for error in errors:
        assert isinstance(error, cw.CounterweightError)
        assert_one_traceback(error)


def assert_one_traceback(error: Exception) -> None:
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    assert told.count("Traceback (most recent call last)") == 1, told
    assert "The above exception" not in told, told
    assert "During handling" not in told, told


def test_other_refusals_have_one_traceback(server: FakeServer, tmp_path: pathlib.Path) -> None:
    server.handler = in_turn(answer)

    def fail(*_: Any) -> None:
        raise LookupError("mine")

    missing = str(tmp_path / "missing")
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"\xff")
    with cw.Client(server.target, timeout=30, transport="stream") as streaming:
        for call in (
            lambda: correct(closed(cw.Client(server.target))),
            lambda: correct(used_and_closed(cw.Client(server.target))),
            closed(cw.Client(server.target)).submit(**BATCH).result,
            used_and_closed(cw.Client(server.target)).list_methods,
            lambda: correct(cw.Client(server.target, transport="shared_memory")),
            lambda: correct(streaming, progress=fail),
            lambda: cw.Client("localhost:1", token_file=missing),
            lambda: cw.Client("localhost:1", token_file=wrong),
            lambda: cw.Client("localhost:1", tls=cw.TlsConfig(missing)),
            lambda: cw.Client("http://localhost:1"),
            lambda: cw.Client("localhost:1", retry=False, on_unavailable="identity").server_info(),
        ):
            error = raised(call)
            assert_one_traceback(error)
            assert isinstance(error, (cw.CounterweightError, ValueError, LookupError)), error


@pytest.mark.parametrize("used", [False, True])
def test_a_closed_client_says_so(server: FakeServer, used: bool) -> None:
    server.handler = answer
    client = (used_and_closed if used else closed)(cw.Client(server.target, timeout=30))
    client.close()
    for call in (
        lambda: correct(client, request_id="mine"),
        client.submit(**BATCH, request_id="mine").result,
        client.server_info,
        client.list_methods,
    ):
        with pytest.raises(cw.CounterweightError, match=r"^the client is closed$") as caught:
            call()
        assert caught.value.code is StatusCode.CANCELLED
        assert caught.value.request_id in ("mine", None)
    assert client.empty((2, 3)).shape == (2, 3)
