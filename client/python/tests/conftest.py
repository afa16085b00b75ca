from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_server import FakeServer

import counterweight as cw


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.stop()


@pytest.fixture
def client(server: FakeServer) -> Iterator[cw.Client]:
    with cw.Client(server.target, timeout=30) as connected:
        yield connected
