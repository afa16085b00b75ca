"""The channels of a client while its files of TLS change."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import counterweight_rl as cw
from counterweight_rl.transport import access as access_module
from counterweight_rl.transport.access import Access, Watched
from counterweight_rl.transport.target import read_server

PEM = b"-----BEGIN CERTIFICATE-----\n"


def test_every_channel_is_there_to_be_closed(tmp_path: pathlib.Path) -> None:
    made: list[Any] = []

    def secure_channel(*_: object) -> Any:
        made.append(object())
        return made[-1]

    library = SimpleNamespace(secure_channel=secure_channel)
    file = tmp_path / "ca.pem"
    file.write_bytes(PEM)
    access = Access(read_server("h:1"), cw.TlsConfig(root_certificates=file), None, None, False)
    first = access.channel(library)
    assert access.channel(library) is first
    file.write_bytes(PEM + PEM)
    second = access.channel(library)
    # A call may still run on the first one.
    file.write_bytes(PEM + PEM + PEM)
    third = access.channel(library)
    assert [first, second, third] == made
    assert access.close() == made
    file.write_bytes(PEM)
    assert access.channel(library) is third


def test_a_channel_is_kept_as_long_as_a_call_may_take(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(access_module, "time", SimpleNamespace(monotonic=lambda: now))
    library = SimpleNamespace(secure_channel=lambda *_: object())
    file = tmp_path / "ca.pem"
    file.write_bytes(PEM)
    access = Access(read_server("h:1"), cw.TlsConfig(root_certificates=file), None, None, False)
    channels = []
    for step in range(5):
        file.write_bytes((2 + step) * PEM)
        channels.append(access.channel(library))
        now += 0.4 * access_module._RETIRED_SECONDS
    # The first one ran out of its time when the last was made.
    assert access.close() == channels[1:]


def test_files_that_are_wrong_are_looked_at_again(tmp_path: pathlib.Path) -> None:
    """A key may become readable, and a certificate valid, without a change of the file."""
    file = tmp_path / "file"
    file.write_text("old")
    is_readable = True

    def read() -> str:
        if not is_readable:
            raise ValueError
        return file.read_text()

    watched = Watched([file], read)
    is_readable = False
    file.write_text("newer")
    assert watched.get() == "old"
    assert watched.get() == "old"
    is_readable = True
    assert watched.get() == "newer"


def test_a_client_that_never_connected_closes_nothing() -> None:
    access = Access(read_server("h:1"), None, None, None, False)
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
