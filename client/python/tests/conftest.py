from __future__ import annotations

import asyncio
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from compat_service import METRICS, answers
from fake_cuda import UUID, FakeCuda
from fake_memory import Sharing, sharing_server
from fake_server import FakeServer
from sample import BATCH, Correct, answer

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl import compat
from counterweight_rl.compat import _releases


@pytest.fixture(autouse=True)
def forgotten_releases() -> Iterator[None]:
    """Tests may pretend that another release of a peer is installed."""
    _releases._installed.cache_clear()
    yield
    _releases._installed.cache_clear()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.stop()


@pytest.fixture
def streaming(server: FakeServer) -> FakeServer:
    """The server, with streams."""
    server.info.features.append("stream")
    return server


@pytest.fixture
def client(server: FakeServer) -> Iterator[cw.Client]:
    with cw.Client(server.target, timeout=300) as connected:
        yield connected


@pytest.fixture
def service(server: FakeServer, client: cw.Client) -> Iterator[FakeServer]:
    """The server of counterweight_rl.compat."""
    server.handler = answers(METRICS)
    compat.use(client, run="my-run", report_steps=False)
    yield server
    compat.use(None)


@pytest.fixture
def sharing() -> Iterator[Sharing]:
    with tempfile.TemporaryDirectory() as folder:
        server, memory = sharing_server(pathlib.Path(folder))
        server.handler = memory.serve(answer)
        yield server, memory
        server.stop()
        memory.stop()


@pytest.fixture
def sharer(sharing: Sharing) -> Iterator[cw.Client]:
    """A client that shares memory with the server."""
    with cw.Client(sharing[0].target, timeout=300, transport="shared_memory") as connected:
        yield connected


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


@pytest.fixture
def computing(sharing: Sharing) -> Sharing:
    """A server that computes on the device."""
    server, _ = sharing
    server.info.features.append("cuda_ipc")
    server.info.devices.add(index=0, name="fake", uuid=UUID)
    return sharing


@pytest.fixture(params=["sync", "aio"])
def correct(request: pytest.FixtureRequest, server: FakeServer) -> Correct:
    """Sends one batch by stream, with either client."""

    def sync(arguments: dict[str, Any], **client: Any) -> cw.Result[Any]:
        with cw.Client(server.target, transport="stream", **client) as connected:
            return connected.correct(**arguments)

    def aio(arguments: dict[str, Any], **client: Any) -> cw.Result[Any]:
        async def main() -> cw.Result[Any]:
            async with counterweight_rl.aio.Client(
                server.target, transport="stream", **client
            ) as connected:
                return await connected.correct(**arguments)

        return asyncio.run(asyncio.wait_for(main(), 60))

    use = sync if request.param == "sync" else aio

    def call(client: dict[str, Any] | None = None, **changes: Any) -> cw.Result[Any]:
        return use({**BATCH, **changes}, **{"timeout": 30, **(client or {})})

    return call
