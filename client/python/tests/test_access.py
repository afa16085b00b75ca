"""The channels of a client whose files of TLS change."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import counterweight_rl as cw
from counterweight_rl.transport.access import Access

PEM = b"-----BEGIN CERTIFICATE-----\n"


def test_every_channel_is_there_to_be_closed(tmp_path: pathlib.Path) -> None:
    made: list[Any] = []

    def secure_channel(*_: object) -> Any:
        made.append(object())
        return made[-1]

    library = SimpleNamespace(secure_channel=secure_channel)
    file = tmp_path / "ca.pem"
    file.write_bytes(PEM)
    access = Access("h:1", cw.TlsConfig(root_certificates=file), None, None, False)
    first = access.channel(library)
    assert access.channel(library) is first
    file.write_bytes(PEM + PEM)
    second = access.channel(library)
    assert [first, second] == made
    assert access.close() == made
    file.write_bytes(PEM)
    assert access.channel(library) is second


def test_a_client_that_never_connected_closes_nothing() -> None:
    access = Access("h:1", None, None, None, False)
    assert access.close() == []
    with pytest.raises(ValueError, match="closed"):
        access.channel(SimpleNamespace())


@pytest.mark.parametrize(
    "make",
    [
        lambda pipe: cw.Client("localhost:1", token_file=pipe),
        lambda pipe: cw.Client("localhost:1", tls=cw.TlsConfig(root_certificates=pipe)),
        lambda pipe: cw.Client(
            "localhost:1", tls=cw.TlsConfig(private_key=pipe, certificate_chain=pipe)
        ),
    ],
)
def test_a_pipe_is_no_file_of_credentials(
    tmp_path: pathlib.Path, make: Callable[[pathlib.Path], cw.Client]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Opening a pipe waits for a writer; the alarm ends the process then.
    signal.alarm(60)
    try:
        with pytest.raises(ValueError, match="pipe is not a regular file"):
            make(pipe)
    finally:
        signal.alarm(0)
