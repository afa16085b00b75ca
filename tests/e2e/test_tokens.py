"""Tokens: who may call, and tokens that are replaced while the server runs."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import counterweight_rl as cw
import grpc
import pytest
from batches import padded_batch
from certificates import Authority, replace
from counterweight_rl import aio
from counterweight_rl.transport.channel import SERVICE
from server_process import DEADLINE_SECONDS, REPOSITORY, ServerProcess, binary, wait_until

pytestmark = pytest.mark.server_only

StartServer = Callable[..., ServerProcess]
TRAINER, OTHER = "trainer-token-0123456789", "other-token-0123456789ab"
VALID = "counterweight_token_file_valid"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
LIST_SERVICES = b"\x3a\x00"


def line(name: str, token: str) -> str:
    return f"{name} sha256:{hashlib.sha256(token.encode()).hexdigest()}\n"


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "tokens"
    path.write_text("# who may call\n\n" + line("trainer", TRAINER) + line("other", OTHER))
    return path


@pytest.fixture
def guarded(start_server: StartServer, file: pathlib.Path) -> Iterator[ServerProcess]:
    server = start_server(f"--tokens={file}")
    yield server
    server.stop()


def may_call(server: ServerProcess, token: str | None, tls: cw.TlsConfig | None = None) -> bool:
    with cw.Client(server.address, token=token, tls=tls) as client:
        try:
            client.correct(method="token_tis", **padded_batch())
        except cw.CounterweightError as error:
            assert error.code is grpc.StatusCode.UNAUTHENTICATED
            assert "token" in str(error)
            return False
    return True


def scrape(server: ServerProcess, authorization: str | None, path: str = "/metrics") -> str:
    headers = {} if authorization is None else {"Authorization": authorization}
    url = server.metrics_url.removesuffix("/metrics") + path
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as page:
        return str(page.read(), "utf-8")


def metric(server: ServerProcess, name: str) -> float:
    for found in scrape(server, f"Bearer {TRAINER}").splitlines():
        if found.startswith(f"{name} "):
            return float(found.split()[1])
    raise KeyError(name)


def test_right_wrong_and_missing_tokens(guarded: ServerProcess) -> None:
    assert may_call(guarded, TRAINER)
    assert may_call(guarded, OTHER)
    assert not may_call(guarded, "x" + TRAINER)
    assert not may_call(guarded, None)
    assert metric(guarded, "counterweight_access_refused_total") >= 2

    async def by_asyncio(token: str) -> None:
        async with aio.Client(guarded.address, token=token, transport="stream") as client:
            await client.correct(method="token_tis", **padded_batch())

    asyncio.run(by_asyncio(TRAINER))
    with pytest.raises(cw.CounterweightError, match="token"):
        asyncio.run(by_asyncio("x" + TRAINER))


def test_every_rpc_is_guarded_but_health(guarded: ServerProcess) -> None:
    paths = [SERVICE + rpc for rpc in ("Correct", "CorrectStream", "ListMethods", "GetServerInfo")]
    with grpc.insecure_channel(guarded.address) as channel:
        for path in [*paths, REFLECTION, "/unknown.Service/Method"]:
            call = channel.stream_stream(path)
            with pytest.raises(grpc.RpcError) as error:
                list(call(iter([LIST_SERVICES]), timeout=DEADLINE_SECONDS))
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED, path
            assert error.value.details() == (
                "this server wants a token: send 'authorization: Bearer TOKEN'"
            )
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert health(b"", timeout=DEADLINE_SECONDS) == b"\x08\x01"
        token = (("authorization", f"bearer {TRAINER}"),)
        answers = channel.stream_stream(REFLECTION)(
            iter([LIST_SERVICES]), timeout=DEADLINE_SECONDS, metadata=token
        )
        assert b"counterweight.v1.CorrectionService" in next(answers)


def test_the_command_line_names_its_own_flag(guarded: ServerProcess) -> None:
    pytest.importorskip("click")
    pytest.importorskip("rich")
    from command_line import refused

    sentence = refused(1, "methods", "--target", guarded.address)
    assert "this server wants a token: --token-file FILE sends it" in sentence


@pytest.mark.parametrize("tokens", [(TRAINER, "wrong"), ("wrong", TRAINER), (TRAINER, TRAINER)])
def test_several_tokens_are_none(guarded: ServerProcess, tokens: tuple[str, str]) -> None:
    """A proxy in front may have checked the other one."""
    with (
        grpc.insecure_channel(guarded.address) as channel,
        pytest.raises(grpc.RpcError) as error,
    ):
        channel.unary_unary(SERVICE + "GetServerInfo")(
            b"",
            timeout=DEADLINE_SECONDS,
            metadata=[("authorization", f"Bearer {token}") for token in tokens],
        )
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "several 'authorization' entries" in str(error.value.details())


def test_unix_sockets_are_guarded_too(
    start_server: StartServer, file: pathlib.Path, folder: pathlib.Path
) -> None:
    server = start_server(f"--tokens={file}", listen=f"unix:{folder}/with_tokens")
    assert may_call(server, TRAINER)
    assert not may_call(server, None)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "unix:{}/tls_and_tokens"])
def test_tls_takes_the_place_of_no_token(
    start_server: StartServer,
    file: pathlib.Path,
    folder: pathlib.Path,
    tmp_path: pathlib.Path,
    listen: str,
) -> None:
    """A Unix socket stays plain beside TLS, but not open."""
    authority = Authority(tmp_path, "authority")
    flags = authority.sign("server").flags()
    server = start_server(*flags, f"--tokens={file}", listen=listen.format(folder))
    is_tcp = listen.startswith("127")
    tls = cw.TlsConfig(root_certificates=authority.certificate) if is_tcp else None
    assert may_call(server, TRAINER, tls)
    assert not may_call(server, "x" + TRAINER, tls)
    assert not may_call(server, None, tls)


def test_metrics_ask_for_the_same_token(guarded: ServerProcess) -> None:
    password = base64.b64encode(f"me:{TRAINER}".encode()).decode()
    for path in "/metrics", "/", "/page.json":
        for authorization in None, "Bearer nonsense", "Basic nonsense", "Basic":
            with pytest.raises(urllib.error.HTTPError) as error:
                scrape(guarded, authorization, path)
            assert error.value.code == 401
            error.value.close()
        assert scrape(guarded, f"Bearer {TRAINER}", path)
        assert scrape(guarded, f"Basic {password}", path)


def test_replaced_tokens(
    guarded: ServerProcess, file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    new = "new-token-0123456789abcdef"
    own = tmp_path / "own"
    own.write_text(f"{TRAINER}\n")
    with cw.Client(guarded.address, token_file=own) as client:
        assert client.server_info().version
        replace(file, (line("trainer", new) + line("other", OTHER)).encode())
        wait_until(lambda: may_call(guarded, new))
        assert not may_call(guarded, TRAINER)
        with pytest.raises(cw.CounterweightError, match="perhaps it was replaced"):
            client.server_info()
        replace(own, new.encode())
        assert client.server_info().version
    assert guarded.events("tokens_reloaded")


def test_a_broken_file_changes_nothing(guarded: ServerProcess, file: pathlib.Path) -> None:
    before = file.read_bytes()
    replace(file, b"trainer sha256:12\n")
    wait_until(lambda: metric(guarded, VALID) == 0)
    assert may_call(guarded, TRAINER)
    replace(file, before)
    wait_until(lambda: metric(guarded, VALID) == 1)
    [failed] = guarded.events("tokens_reload_failed")
    assert failed["error"].startswith(f"--tokens={file}: line 1: after the name comes 'sha256:'")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "it has no token, so no client could call"),
        ("# none\n", "it has no token, so no client could call"),
        (line("a", TRAINER) + "b\n", "line 2: after the name comes 'sha256:'"),
        (line("a", TRAINER).strip() + " c\n", "line 1: after the name comes 'sha256:'"),
        (line("a:b", TRAINER), "line 1: a name has 1 to 64 letters"),
        (line("a", TRAINER) + line("b", TRAINER), "line 2: the token is there already"),
        (None, "it cannot be read: No such file or directory"),
    ],
)
def test_files_that_are_wrong_at_start(
    tmp_path: pathlib.Path, text: str | None, wrong: str
) -> None:
    file = tmp_path / "tokens"
    if text is not None:
        file.write_text(text)
    flags = ["--listen=127.0.0.1:0", "--metrics_listen=", "--log_level=off", f"--tokens={file}"]
    ended = subprocess.run(
        [str(binary()), *flags], capture_output=True, text=True, timeout=DEADLINE_SECONDS
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"counterweight-server: --tokens={file}: {wrong}")


def test_hash_token() -> None:
    def run(flag: str, token: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(binary()), flag], input=token, capture_output=True, text=True, timeout=60
        )

    assert run("--hash_token=trainer", f"{TRAINER}\n").stdout == line("trainer", TRAINER)
    assert run("--hash_token=trainer", TRAINER).stdout == line("trainer", TRAINER)
    for flag, token in (
        ("--hash_token", TRAINER),
        ("--hash_token=trainer", ""),
        ("--hash_token=trainer", "short"),
        ("--hash_token=a b", TRAINER),
    ):
        ended = run(flag, token)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "--hash_token" in ended.stderr


def test_the_name_is_who_calls(start_server: StartServer, file: pathlib.Path) -> None:
    server = start_server(f"--tokens={file}", "--max_runs=8", "--max_runs_per_client=1")
    for token, run in ((TRAINER, "first"), (OTHER, "second"), (TRAINER, "third")):
        with cw.Client(server.address, token=token) as client:
            client.correct(method="token_tis", run=run, **padded_batch())
    page = scrape(server, f"Bearer {TRAINER}")
    # One run for each client: the trainer's first was removed, the other's stayed.
    assert [run for run in ("first", "second", "third") if f'run="{run}"' in page] == [
        "second",
        "third",
    ]
    lines = server.events("request", 3)
    assert [entry["client"] for entry in lines] == ["trainer", "other", "trainer"]
    assert TRAINER not in json.dumps(server.log_lines())


def test_tokens_of_one_address_are_several_peers(
    start_server: StartServer, file: pathlib.Path
) -> None:
    """A peer with all places gives its newest to another peer; to itself it would not."""
    server = start_server(
        f"--tokens={file}", "--max_requests_in_flight=1", "--max_queued_requests=1"
    )
    over = threading.Event()

    def silence() -> Iterator[bytes]:
        over.wait(DEADLINE_SECONDS)
        yield from ()

    with grpc.insecure_channel(server.address) as channel:

        def begin(token: str) -> grpc.Call:
            return channel.stream_stream(SERVICE + "CorrectStream")(
                silence(), metadata=(("authorization", f"Bearer {token}"),)
            )

        def arriving() -> float:
            return metric(server, "counterweight_arriving_requests")

        calls = [begin(TRAINER)]
        wait_until(lambda: arriving() == 1)
        calls.append(begin(TRAINER))
        wait_until(lambda: arriving() == 2)
        calls.append(begin(OTHER))
        wait_until(calls[1].done)
        assert calls[1].code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not calls[0].done()
        assert not calls[2].done()
        for call in calls:
            call.cancel()
        over.set()


def test_a_token_is_not_sent_where_others_could_read_it() -> None:
    for target in (
        "10.0.0.1:50051",
        "trainer.example:50051",
        "dns:///trainer.example:50051",
        "ipv4:127.0.0.1:1,10.0.0.1:1",
        "ipv6:[::1]:1,[2001:db8::1]:1",
    ):
        with pytest.raises(ValueError, match="could be read on its way"):
            cw.Client(target, token=TRAINER)
        cw.Client(target, token=TRAINER, allow_insecure_token=True).close()
        cw.Client(target, token=TRAINER, tls=cw.TlsConfig()).close()
    for target in (
        "unix:/tmp/s",
        "localhost:1",
        "127.0.0.7:1",
        "[::1]:1",
        "dns:///localhost:1",
        "ipv4:127.0.0.1:1,127.0.0.1:2",
        "ipv6:[::1]:1,[::1]:2",
    ):
        cw.Client(target, token=TRAINER).close()


def test_tokens_that_are_none(tmp_path: pathlib.Path) -> None:
    for token in "", "two words", "line\n":
        with pytest.raises(ValueError, match="visible ASCII"):
            cw.Client("localhost:1", token=token)
    with pytest.raises(ValueError, match="exclude each other"):
        cw.Client("localhost:1", token=TRAINER, token_file=tmp_path)
    with pytest.raises(ValueError, match="token_file"):
        cw.Client("localhost:1", token_file=tmp_path / "none")


@pytest.fixture
def open_folder() -> Iterator[pathlib.Path]:
    """A folder that other users may enter; pytest's are closed by each pytest that begins."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).chmod(0o755)
        yield pathlib.Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_other_users_share_memory_if_they_are_allowed(
    start_server: StartServer, open_folder: pathlib.Path
) -> None:
    user = 65534
    for folder in (pathlib.Path(sys.executable), REPOSITORY / "client/python"):
        if not all(each.stat().st_mode & 0o001 for each in folder.parents):
            pytest.skip(f"other users cannot read {folder}")
    program = """
import sys, counterweight_rl as cw
sys.path.append(sys.argv[2])
from batches import padded_batch
client = cw.Client(sys.argv[1], transport="shared_memory")
print(len(client.correct(method="token_tis", **padded_batch()).weights))
"""
    for flags, answered in (([f"--shared_memory_uids={user}"], True), ([], False)):
        folder = open_folder / str(len(flags))
        folder.mkdir(mode=0o755)
        server = start_server(
            *flags,
            "--socket_mode=0666",
            f"--shared_memory_socket={folder}/m",
            listen=f"unix:{folder}/c",
        )
        assert (folder / "c").stat().st_mode & 0o777 == 0o666
        assert (folder / "m").stat().st_mode & 0o777 == 0o666
        ended = subprocess.run(
            [sys.executable, "-c", program, server.address, str(REPOSITORY / "tests/e2e")],
            user=user,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            env={**os.environ, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert (ended.returncode == 0) == answered, ended.stderr
        assert ended.stdout == ("6\n" if answered else "")
        assert answered or "--shared_memory_uids" in ended.stderr or "own user" in ended.stderr
