"""Proxies of the environment get neither what is for this machine nor a readable token."""

from __future__ import annotations

import asyncio
import os
import pathlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.experimental
import pytest
from fake_server import FakeServer
from sample import BATCH, answer, correct

import counterweight_rl as cw
from counterweight_rl import aio, compat
from counterweight_rl.compat import _service
from counterweight_rl.transport.publisher import open_publisher

FOR_GRPC = ("grpc_proxy", "https_proxy", "http_proxy")
VARIABLES = (*FOR_GRPC, "all_proxy", "GRPC_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
TOKEN = "secret-token-0123456789"
PACKAGE = pathlib.Path(__file__).parents[1]


class Proxy:
    """Records what it gets, and connects no client."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.asked = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(30)
                self.received.append(connection.recv(4096))
                self.asked.set()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy that every variable names."""
    recording = Proxy()
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name in VARIABLES:
        monkeypatch.setenv(name, f"http://{recording.address}")
    monkeypatch.setenv("GRPC_ADDRESS_HTTP_PROXY", recording.address)
    monkeypatch.setenv("GRPC_ADDRESS_HTTP_PROXY_ENABLED_ADDRESSES", "0.0.0.0/0,::/0")
    yield recording
    monkeypatch.undo()
    recording.stop()


@pytest.fixture
def answering(server: FakeServer) -> FakeServer:
    server.handler = answer
    return server


@pytest.fixture(params=["127.0.0.1", "localhost", "dns:///localhost", "ipv4:127.0.0.1"])
def local(request: pytest.FixtureRequest, answering: FakeServer) -> str:
    return f"{request.param}:{answering.target.rpartition(':')[2]}"


@pytest.mark.parametrize("variable", [*FOR_GRPC, "GRPC_ADDRESS_HTTP_PROXY"])
def test_the_recording_proxy_would_be_asked(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """It would get a call for another machine without a token."""
    for name in (*VARIABLES, "GRPC_ADDRESS_HTTP_PROXY"):
        if name != variable:
            monkeypatch.delenv(name)
    # TEST-NET-1 of RFC 5737, where no machine is.
    with cw.Client("192.0.2.1:50051", timeout=60, retry=False) as client:
        asking = threading.Thread(
            target=pytest.raises, args=(cw.CounterweightError, client.server_info)
        )
        asking.start()
        assert proxy.asked.wait(60)
        client.close()
        asking.join()
    assert proxy.received[0].startswith(b"CONNECT 192.0.2.1:50051 ")


@pytest.mark.parametrize("token", [None, TOKEN])
def test_this_machine_is_reached_without_it(proxy: Proxy, local: str, token: str | None) -> None:
    with cw.Client(local, timeout=60, token=token) as client:
        correct(client)
        client.submit(**BATCH).result()

    async def main() -> None:
        async with aio.Client(local, timeout=60, token=token, transport="unary") as client:
            await client.correct(**BATCH)

    asyncio.run(main())
    assert proxy.received == []


def test_publish_passes_by(proxy: Proxy, local: str, answering: FakeServer) -> None:
    arrived = threading.Event()

    def publish(request: Any, context: Any) -> Any:
        arrived.set()
        return answering.info.__class__()

    answering.publish = publish
    sender = open_publisher(local, None, TOKEN, None, False)
    assert sender is not None
    sender.put(b"")
    assert arrived.wait(60)
    sender.close()
    assert proxy.received == []


def test_compat_passes_by(proxy: Proxy, local: str) -> None:
    compat.use(target=local, timeout=60)
    try:
        _service.check()
    finally:
        compat.use()
    assert proxy.received == []


def test_the_command_line_passes_by(proxy: Proxy, answering: FakeServer) -> None:
    pytest.importorskip("click")
    pytest.importorskip("rich")
    answering.methods.methods.add(name="token_tis")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    command = [sys.executable, "-m", "counterweight_rl.cli", "methods", "--target"]
    port = answering.target.rpartition(":")[2]
    subprocess.run([*command, f"localhost:{port}"], env=environment, check=True, timeout=120)
    assert proxy.received == []


@pytest.mark.parametrize(
    "tls", [None, grpc.experimental.insecure_channel_credentials()], ids=["none", "insecure"]
)
def test_a_token_without_tls_passes_by(proxy: Proxy, tls: Any) -> None:
    """Even where others may read it: a name of this machine that no parser knows has no proxy."""
    with pytest.raises(ValueError, match="could be read on its way"):
        cw.Client("192.0.2.1:50051", token=TOKEN, tls=tls)
    with (
        cw.Client(
            "192.0.2.1:50051",
            timeout=0.5,
            retry=False,
            token=TOKEN,
            tls=tls,
            allow_insecure_token=True,
        ) as client,
        pytest.raises(cw.CounterweightError),
    ):
        client.server_info()
    assert proxy.received == []


@pytest.mark.parametrize("target", ["localhost:1", "ipv4:192.0.2.1:1,192.0.2.2:1"])
def test_tls_to_this_machine_or_to_a_list_passes_by(proxy: Proxy, target: str) -> None:
    tls = cw.TlsConfig(server_name="h")
    with (
        cw.Client(target, timeout=0.5, retry=False, token=TOKEN, tls=tls) as client,
        pytest.raises(cw.CounterweightError),
    ):
        client.server_info()
    assert proxy.received == []
