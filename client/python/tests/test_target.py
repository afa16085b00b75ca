"""Addresses of servers: what is taken, what is refused, and by whom."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fake_server import FakeServer
from sample import answer, correct

import counterweight_rl as cw
from counterweight_rl import aio, compat
from counterweight_rl.errors import CounterweightError
from counterweight_rl.transport.target import read_server

MALFORMED = [
    *("http://h:1", "https://h:1", "tcp://h:1", "grpc://h:1", "grpcs://h:1", "file:///s", "//h:1"),
    *("", "h", "localhost", "127.0.0.1", "[::1]", "dns:h", "dns:///h", "unix", "local", "Local:"),
    *("h:", "h:1l", "h:http", "h:1/", "h:1/p", "h:1?q", "h:0", "h:65536", "h:-1", "h:+1", "h:1.5"),
    *("h:999999999999", "h:\uff11", ":1", "dns:///:1", "[]:1", "[::1:1", "::1", "::1:1", "[h]:1"),
    *("[::1", "[::1]x:1", "[::g]:1", "1.2.3:1", "1.2.3.4.5:1", "256.1.1.1:1", "127.1:1", "a..b:1"),
    *("-h:1", ".h:1", "h@h:1", "é:1", f"{'h' * 64}:1", " h:1", "h:1 ", "h :1", "h:1\n", "h\0:1"),
    *("h:1,g:2", "dns:///h:1,g:2", "ipv4:", "ipv4:1.2.3.4", "ipv4:h:1", "ipv4:[::1]:1"),
    *(
        "ipv4:1.2.3.4:1,",
        "ipv4:1.2.3.4:1,1.2.3.5",
        "ipv4:1.2.3.4:1,h:1",
        "ipv4:1.2.3.4:1, 1.2.3.4:2",
    ),
    *("ipv6:1.2.3.4:1", "ipv6:[::1]:1,[::2]:0", "ipv4://h/1.2.3.4:1", "dns://h", "dns:///"),
    *("unix:", "unix://", "unix://s", "unix:///", "unix:a,b", "unix:a?b", "unix:a#b", "unix:a\n"),
    *(f"unix:{'s' * 108}", f"unix:{'é' * 54}", "unix-abstract:", f"unix-abstract:{'s' * 108}"),
]


@pytest.mark.parametrize("target", MALFORMED)
def test_a_malformed_target_is_refused_when_it_is_given(target: str) -> None:
    """It would look like a server that is away, for which ``on_unavailable`` answers."""
    refusals: list[Callable[[], Any]] = [
        lambda: cw.Client(target, on_unavailable="identity"),
        lambda: aio.Client(target),
    ]
    for refuse in refusals:
        with pytest.raises(ValueError, match=r"^target ") as caught:
            refuse()
        assert repr(target) in str(caught.value)
        assert caught.value.__suppress_context__
    if target:  # as good as not given
        with pytest.raises(ValueError, match=r"^target "):
            compat.use(target=target)
    with pytest.raises(ValueError, match=r"^publish "):
        cw.Client("local:", publish=target)


@pytest.mark.parametrize("name", ["target", "publish"])
def test_a_malformed_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"COUNTERWEIGHT_{name.upper()}", "http://localhost:50051")
    with pytest.raises(ValueError, match=f"^COUNTERWEIGHT_{name.upper()} 'http://localhost:50051'"):
        compat.use(run="r")
    if name == "target":
        monkeypatch.setenv("COUNTERWEIGHT_TARGET", "local:?threads=0")
        with pytest.raises(ValueError, match=r"^COUNTERWEIGHT_TARGET 'local:.threads=0': threads"):
            compat.use(run="r")


@pytest.mark.parametrize("target", [None, 50051, b"h:1", ("h", 1)])
def test_a_target_is_a_str(target: Any) -> None:
    for refuse in (cw.Client, aio.Client):
        with pytest.raises(TypeError, match=r"^target must be a str, not "):
            refuse(target)


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="scheme") as caught:
        cw.Client("http://user:secret@h:1")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "is_local", "is_direct"),
    [
        ("localhost:1", True, True),
        ("LOCALHOST.:1", True, True),
        ("127.0.0.1:65535", True, True),
        ("127.9.9.9:1", True, True),
        ("[::1]:1", True, True),
        ("[0:0::1]:1", True, True),
        ("[::ffff:127.0.0.1]:1", True, True),
        ("dns:localhost:1", True, True),
        ("DNS:///localhost:1", True, True),
        ("ipv4:127.0.0.1:1,127.0.0.2:1", True, True),
        ("ipv6:[::1]:1", True, True),
        ("unix:/s", True, True),
        ("unix:s", True, True),
        ("unix-abstract:s", True, True),
        # Sure enough to spare a proxy, but not for a token.
        ("0.0.0.0:1", False, True),
        ("[::]:1", False, True),
        ("a.localhost:1", False, True),
        ("localhost.localdomain:1", False, True),
        ("localhost4:1", False, True),
        ("localhost4.localdomain4:1", False, True),
        ("localhost6:1", False, True),
        ("localhost6.localdomain6:1", False, True),
        ("ip6-localhost:1", False, True),
        ("ip6-loopback:1", False, True),
        ("dns://10.0.0.1/localhost:1", False, True),
        ("ipv4:127.0.0.1:1,10.0.0.1:1", False, True),
        ("ipv4:10.0.0.1:1,127.0.0.1:1", False, True),
        ("ipv4:10.0.0.1:1,10.0.0.2:1", False, True),
        ("h:1", False, False),
        ("localhosts:1", False, False),
        ("localhost.example:1", False, False),
        ("128.0.0.1:1", False, False),
        ("dns:///h_1.example:00001", False, False),
        ("[fe80::1%eth0]:1", False, False),
        ("ipv4:10.0.0.1:1", False, False),
    ],
)
def test_what_stays_on_this_machine(target: str, is_local: bool, is_direct: bool) -> None:
    read = read_server(target)
    assert (read.is_local, read.is_direct) == (is_local, is_direct)


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("unix:/run/a.sock", b"/run/a.sock"),
        ("unix:///run/a.sock", b"/run/a.sock"),
        ("unix:a.sock", b"a.sock"),
        ("unix:/run/a%20b", b"/run/a%20b"),
        (f"unix:{'s' * 107}", b"s" * 107),
        ("unix-abstract:a", b"\0a"),
        ("localhost:50051", b""),
        ("dns:///unix:50051", b""),
    ],
)
def test_the_address_of_a_socket(target: str, address: bytes) -> None:
    assert read_server(target).socket == address


@pytest.mark.parametrize("name", ["a b", "a%20b", "a+b", "a:b@c", "é", "[a]"])
def test_a_path_is_taken_as_it_is_written(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/{name}")
        listener.listen()
        listener.settimeout(30)
        with cw.Client(f"unix:{folder}/{name}", timeout=60) as client:
            asking = threading.Thread(
                target=pytest.raises, args=(CounterweightError, client.server_info)
            )
            asking.start()
            listener.accept()[0].close()
            client.close()
            asking.join()


def test_names_of_one_port_are_as_good(server: FakeServer) -> None:
    server.handler = answer
    port = server.target.rpartition(":")[2]
    for target in (f"LocalHost:{port}", f"ipv4:127.0.0.1:{port}", f"dns:127.0.0.1:{port}"):
        with cw.Client(target, timeout=30) as client:
            assert correct(client).backend == "cpu"
