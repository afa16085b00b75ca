"""Timeouts and numbers among the settings, in every place that takes them."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from fake_server import FakeServer, failing, retry_info
from grpc import StatusCode
from sample import BATCH, answer, correct

import counterweight_rl as cw
from counterweight_rl import aio, compat
from counterweight_rl.compat import _service
from counterweight_rl.settings import read_count, read_seconds, read_timeout

WRONG_NUMBERS = [0, 0.0, -1, -math.inf, math.nan, -(10**400), np.float32("nan"), np.int64(0)]
WRONG_TYPES: list[Any] = [True, "5", b"5", [5], np.bool_(True), Decimal(5), object(), 1j]
NO_LIMIT = [math.inf, 1e8, 1e10, 1e300, 10**400, np.float64("inf"), np.float32("inf")]


def named(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:6]}"


def ask(timeout: Any) -> None:
    cw.Client("localhost:1", timeout=timeout)


def ask_asyncio(timeout: Any) -> None:
    aio.Client("localhost:1", timeout=timeout)


def call(timeout: Any) -> None:
    with cw.Client("localhost:1") as client:
        correct(client, timeout=timeout)


def submit(timeout: Any) -> None:
    with cw.Client("localhost:1") as client:
        client.submit(**BATCH, timeout=timeout).result()


def call_asyncio(timeout: Any) -> None:
    async def main() -> None:
        async with aio.Client("localhost:1") as client:
            await client.correct(**BATCH, timeout=timeout)

    asyncio.run(main())


def others(timeout: Any) -> None:
    with cw.Client("localhost:1") as client:
        for method in (client.server_info, client.list_methods):
            with pytest.raises((TypeError, ValueError), match=r"^timeout"):
                method(timeout=timeout)
        client.server_info(timeout=timeout)


def use(timeout: Any) -> None:
    compat.use(timeout=timeout)


CALLS = [ask, ask_asyncio, call, submit, call_asyncio, others]


@pytest.mark.parametrize("take", [*CALLS, use])
@pytest.mark.parametrize("timeout", WRONG_NUMBERS, ids=named)
def test_a_wrong_timeout_is_refused_by_name(take: Callable[[Any], None], timeout: Any) -> None:
    with pytest.raises(ValueError, match=r"^timeout must be above 0 seconds; got "):
        take(timeout)


@pytest.mark.parametrize("take", CALLS)
@pytest.mark.parametrize("timeout", WRONG_TYPES)
def test_a_timeout_is_a_number(take: Callable[[Any], None], timeout: Any) -> None:
    with pytest.raises(TypeError, match=r"^timeout must be a number of seconds, not "):
        take(timeout)


@pytest.mark.parametrize("timeout", NO_LIMIT, ids=named)
def test_a_very_long_timeout_is_none(server: FakeServer, timeout: Any) -> None:
    server.handler = answer
    with cw.Client(server.target, timeout=timeout) as client:
        correct(client)
    with cw.Client(server.target, timeout=1e-6) as client:
        correct(client, timeout=timeout)
        client.server_info(timeout=timeout)

    async def main() -> None:
        async with aio.Client(server.target, timeout=timeout, transport="stream") as client:
            await client.correct(**BATCH)
        async with aio.Client(server.target, timeout=1e-6) as client:
            await client.correct(**BATCH, timeout=timeout)

    asyncio.run(main())


@pytest.mark.parametrize("timeout", ["inf", "1e10", " Infinity "])
def test_a_very_long_timeout_of_the_environment(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, timeout: str
) -> None:
    monkeypatch.setenv("COUNTERWEIGHT_TIMEOUT", timeout)
    monkeypatch.setenv("COUNTERWEIGHT_RETRY_SECONDS", timeout)
    compat.use(target=server.target)
    try:
        _service.check()
    finally:
        compat.use()


def test_the_longest_timeout_that_is_one(server: FakeServer) -> None:
    remaining: list[float] = []

    def note(request: Any, context: Any) -> Any:
        remaining.append(context.time_remaining())
        return answer(request, context)

    server.handler = note
    with cw.Client(server.target, timeout=9e7) as client:
        correct(client)
        correct(client, timeout=Fraction(120))
    assert 8e7 < remaining[0] < 9.1e7  # gRPC rounds up to minutes
    assert 0 < remaining[1] <= 121


def test_numbers() -> None:
    assert read_timeout(None) is None
    assert read_timeout(math.inf) is None
    assert read_timeout(np.float32(2.5)) == 2.5
    assert read_seconds("pause", 0, or_zero=True) == 0
    assert read_seconds("pause", 1e9) == math.inf
    assert read_count("n", np.int32(3), 1) == 3
    with pytest.raises(ValueError, match=r"^pause must be at least 0 seconds; got -1"):
        read_seconds("pause", -1, or_zero=True)
    with pytest.raises(ValueError, match=r"^n must be from 1 to 2; got 3"):
        read_count("n", 3, 1, 2)


@pytest.mark.parametrize("wrong", [1.5, "2", True, math.nan, None, np.float32(2)])
@pytest.mark.parametrize("name", ["max_in_flight", "chunk_bytes"])
def test_counts_are_ints(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be an int, not "):
        cw.Client("localhost:1", **{name: wrong})


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ({"attempts": 2.5}, TypeError),
        ({"attempts": True}, TypeError),
        ({"attempts": "5"}, TypeError),
        ({"attempts": math.inf}, TypeError),
        ({"max_seconds": math.nan}, ValueError),
        ({"max_seconds": "60"}, TypeError),
        ({"max_seconds": True}, TypeError),
        ({"max_pause": math.nan}, ValueError),
        ({"max_pause": -1}, ValueError),
        ({"max_pause": "1"}, TypeError),
        ({"max_pause": None}, TypeError),
        ({"interrupted": "no"}, TypeError),
    ],
)
def test_a_retry_policy_names_what_is_wrong(policy: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"^{next(iter(policy))} must be "):
        cw.RetryPolicy(**policy)


def test_a_retry_policy_without_limits() -> None:
    cw.RetryPolicy(attempts=10**400, max_seconds=math.inf, max_pause=math.inf)


def test_a_delay_beyond_what_a_thread_can_wait(server: FakeServer) -> None:
    refused = threading.Event()
    refuse = failing(StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(10**14))

    def note(request: Any, context: Any) -> Any:
        refused.set()
        return refuse(request, context)

    server.handler = note
    client = cw.Client(server.target, timeout=None)
    future = client.submit(**BATCH)
    assert refused.wait(60)
    client.close()
    error = future.exception()
    assert isinstance(error, cw.CounterweightError)
    assert error.code is StatusCode.CANCELLED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tls": True}, "tls must be a TlsConfig"),
        ({"tls": "ca.crt"}, "tls must be a TlsConfig"),
        ({"token": b"secret"}, "token must be a str, not bytes"),
        ({"token": 5}, "token must be a str, not int"),
        ({"token_file": 5}, "token_file must be a path, not int"),
        ({"allow_insecure_token": "no"}, "allow_insecure_token must be a bool, not str"),
    ],
)
def test_credentials_of_other_types(arguments: dict[str, Any], message: str) -> None:
    for refuse in (cw.Client, aio.Client):
        with pytest.raises(TypeError, match=f"^{message}"):
            refuse("localhost:1", **arguments)


@pytest.mark.parametrize("name", ["root_certificates", "private_key", "certificate_chain"])
def test_keys_are_neither_shown_nor_taken_for_paths(name: str) -> None:
    with pytest.raises(TypeError, match=f"^TlsConfig.{name} must be bytes or a path, not int"):
        cw.TlsConfig(**{name: 5})
    pem = "-----BEGIN PRIVATE KEY-----\nsecret\n"
    with pytest.raises(TypeError, match=f"^TlsConfig.{name}: a str is the path") as caught:
        cw.TlsConfig(**{name: pem})
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(cw.TlsConfig(private_key=pem.encode()))
