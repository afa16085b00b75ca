"""TLS: who is let in, and certificates that are renewed while the server runs."""

from __future__ import annotations

import asyncio
import pathlib
import subprocess
import time
from collections.abc import Callable

import counterweight_rl as cw
import grpc
import pytest
from batches import padded_batch
from certificates import Authority, Pair, replace
from counterweight_rl import aio
from server_process import DEADLINE_SECONDS, ServerProcess, binary, wait_until

pytestmark = [pytest.mark.server_only, pytest.mark.usefixtures("patient")]

StartServer = Callable[..., ServerProcess]
VALID = "counterweight_tls_files_valid"
EXPIRY = "counterweight_tls_certificate_expiry_seconds"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(made: pathlib.Path) -> Authority:
    return Authority(made, "authority")


@pytest.fixture(scope="module")
def other(made: pathlib.Path) -> Authority:
    return Authority(made, "other")


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("server")


@pytest.fixture(scope="module")
def mutual(start_server: StartServer, authority: Authority, pair: Pair) -> ServerProcess:
    """Only trainer.example may call."""
    return start_server(
        *pair.flags(),
        f"--tls_client_ca={authority.certificate}",
        "--tls_client_names=trainer.example",
    )


def tls(authority: Authority, client: Pair | None = None) -> cw.TlsConfig:
    return cw.TlsConfig(
        root_certificates=authority.certificate,
        private_key=client and client.key,
        certificate_chain=client and client.certificate,
    )


def connect(server: ServerProcess, config: cw.TlsConfig | None) -> None:
    with cw.Client(server.address, tls=config, retry=False, timeout=DEADLINE_SECONDS) as client:
        assert client.correct(method="token_tis", **padded_batch()).metrics


def test_who_trusts_the_authority_is_served(
    start_server: StartServer, authority: Authority, other: Authority, pair: Pair
) -> None:
    server = start_server(*pair.flags())
    connect(server, tls(authority))
    connect(server, cw.TlsConfig(root_certificates=authority.certificate.read_bytes()))
    for config in tls(other), None:
        with pytest.raises(cw.UnavailableError):
            connect(server, config)

    async def by_asyncio() -> None:
        async with aio.Client(server.address, tls=tls(authority)) as client:
            assert (await client.correct(method="token_tis", **padded_batch())).metrics

    asyncio.run(by_asyncio())


@pytest.mark.parametrize("transport", ["unary", "stream"])
def test_the_answer_is_that_of_plain_tcp(
    start_server: StartServer,
    server: ServerProcess,
    authority: Authority,
    pair: Pair,
    transport: cw.Transport,
) -> None:
    batch = padded_batch(200, 999)
    weights = []
    for target, config in (
        (server.address, None),
        (start_server(*pair.flags()).address, tls(authority)),
    ):
        with cw.Client(target, tls=config, transport=transport) as client:
            weights.append(client.correct(method="token_tis", **batch).weights.tobytes())
    assert weights[0] == weights[1]


def test_the_name_is_checked(start_server: StartServer, authority: Authority) -> None:
    server = start_server(*authority.sign("elsewhere", "DNS:elsewhere.example").flags())
    with pytest.raises(cw.UnavailableError):
        connect(server, tls(authority))
    connect(
        server,
        cw.TlsConfig(root_certificates=authority.certificate, server_name="elsewhere.example"),
    )


def test_unix_sockets_stay_plain(
    start_server: StartServer, pair: Pair, folder: pathlib.Path
) -> None:
    server = start_server(*pair.flags(), listen=f"unix:{folder}/with_tls")
    connect(server, None)


def test_old_versions_are_refused(mutual: ServerProcess) -> None:
    answer = subprocess.run(
        ["openssl", "s_client", "-connect", mutual.address, "-tls1_1"],
        input="",
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert "Cipher is (NONE)" in answer.stdout


@pytest.mark.parametrize(
    "sans",
    [
        "DNS:trainer.example",
        "DNS:Trainer.EXAMPLE",
        "DNS:guest.example,URI:spiffe://example/guest,DNS:trainer.example",
    ],
)
def test_the_allowed_client_is_served(
    mutual: ServerProcess, authority: Authority, sans: str
) -> None:
    connect(mutual, tls(authority, authority.sign("trainer", sans)))


def test_an_authority_that_has_ended_leaves_the_others(
    start_server: StartServer,
    authority: Authority,
    other: Authority,
    pair: Pair,
    tmp_path: pathlib.Path,
) -> None:
    trusted = tmp_path / "clients.pem"
    ended = other.sign("ended", days=-1).certificate.read_bytes()
    trusted.write_bytes(ended + authority.certificate.read_bytes())
    server = start_server(*pair.flags(), f"--tls_client_ca={trusted}")
    connect(server, tls(authority, authority.sign("trainer")))


def test_clients_without_a_good_certificate_are_refused(
    mutual: ServerProcess, authority: Authority, other: Authority
) -> None:
    expired = authority.sign("late", "DNS:trainer.example", days=-1)
    for client in None, other.sign("trainer", "DNS:trainer.example"), expired:
        with pytest.raises(cw.UnavailableError):
            connect(mutual, tls(authority, client))


@pytest.mark.parametrize(
    "sans",
    [
        "DNS:guest.example",
        "DNS:trainer.example.guest",
        "DNS:guest.trainer.example",
        "DNS:trainer.exampl",
        "DNS:*.example",
    ],
)
def test_clients_by_another_name_are_told(
    mutual: ServerProcess, authority: Authority, sans: str
) -> None:
    with pytest.raises(cw.CounterweightError, match="--tls_client_names") as error:
        connect(mutual, tls(authority, authority.sign("guest", sans)))
    assert error.value.code is grpc.StatusCode.PERMISSION_DENIED


def test_renewed_files_are_served_without_a_restart(
    start_server: StartServer, authority: Authority, other: Authority, tmp_path: pathlib.Path
) -> None:
    served = Authority(tmp_path, "old").sign("server", days=3)
    server = start_server(*served.flags())
    roots = tmp_path / "roots.pem"
    replace(roots, (tmp_path / "old.pem").read_bytes())
    before = server.metric(EXPIRY)
    assert 2 < (before - time.time()) / 86400 < 3
    with cw.Client(server.address, tls=cw.TlsConfig(root_certificates=roots)) as client:
        assert client.server_info().version
        other.sign("server").copy_to(served)
        wait_until(lambda: server.metric(EXPIRY) != before)
        assert server.metric(VALID) == 1
        with pytest.raises(cw.UnavailableError):
            connect(server, tls(authority))
        connect(server, tls(other))
        # Connections that are open stay, and new ones follow the client's file.
        assert client.server_info().version
        replace(roots, other.certificate.read_bytes())
        assert client.server_info().version


@pytest.mark.parametrize(("days", "earliest"), [(3, 3), (60, 30)])
def test_the_earliest_end_of_a_chain_is_shown(
    start_server: StartServer, authority: Authority, days: int, earliest: int
) -> None:
    served = authority.sign("chain", days=days)
    chain = served.certificate.read_bytes() + authority.certificate.read_bytes()
    replace(served.certificate, chain)
    server = start_server(*served.flags())
    assert earliest - 1 < (server.metric(EXPIRY) - time.time()) / 86400 < earliest


def test_a_removed_authority_ends_on_open_connections_too(
    start_server: StartServer, authority: Authority, other: Authority, tmp_path: pathlib.Path
) -> None:
    trusted = tmp_path / "clients.pem"
    both = authority.certificate.read_bytes() + other.certificate.read_bytes()
    trusted.write_bytes(both)
    pair = authority.sign("server")
    server = start_server(*pair.flags(), f"--tls_client_ca={trusted}", "--metrics_tls=false")
    leaver = tls(authority, other.sign("leaver", "DNS:leaver.example"))
    stayer = tls(authority, authority.sign("stayer", "DNS:stayer.example"))
    with (
        cw.Client(server.address, tls=leaver, retry=False) as leaving,
        cw.Client(server.address, tls=stayer, retry=False) as staying,
    ):

        def is_served(client: cw.Client) -> bool:
            try:
                return bool(client.server_info().version)
            except cw.CounterweightError as error:
                assert error.code is grpc.StatusCode.PERMISSION_DENIED
                assert "--tls_client_ca" in str(error)
                return False

        assert is_served(leaving)
        assert is_served(staying)
        replace(trusted, authority.certificate.read_bytes())
        wait_until(lambda: not is_served(leaving))
        assert is_served(staying)
        with pytest.raises(cw.UnavailableError):
            connect(server, leaver)
        # Another certificate of the server's changes nothing for clients.
        before = server.metric(EXPIRY)
        authority.sign("server", days=9).copy_to(pair)
        wait_until(lambda: server.metric(EXPIRY) != before)
        assert is_served(staying)
        assert not is_served(leaving)
        replace(trusted, both)
        wait_until(lambda: is_served(leaving))
        assert is_served(staying)


def test_wrong_files_change_nothing(
    start_server: StartServer, authority: Authority, tmp_path: pathlib.Path
) -> None:
    served = Authority(tmp_path, "old").sign("server", days=3)
    server = start_server(*served.flags())
    before = server.metric(EXPIRY)
    key = served.key.read_bytes()
    replace(served.key, authority.sign("another").key.read_bytes())
    wait_until(lambda: server.metric(VALID) == 0)
    connect(server, cw.TlsConfig(root_certificates=tmp_path / "old.pem"))
    assert server.metric(EXPIRY) == before
    replace(served.key, key)
    wait_until(lambda: server.metric(VALID) == 1)
    connect(server, cw.TlsConfig(root_certificates=tmp_path / "old.pem"))
    [failed] = server.events("tls_reload_failed")
    assert failed["error"] == (
        f"--tls_key={served.key}: it is not the key of --tls_certificate={served.certificate}"
    )


def refused(*flags: str) -> tuple[int, str]:
    """The exit code and the sentence of a server that does not start."""
    ended = subprocess.run(
        [str(binary()), "--listen=127.0.0.1:0", "--metrics_listen=", "--log_level=off", *flags],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert ended.stdout == ""
    return ended.returncode, ended.stderr


def test_files_that_are_wrong_at_start(
    authority: Authority, pair: Pair, tmp_path: pathlib.Path
) -> None:
    late = authority.sign("late", days=-1)
    text = tmp_path / "text"
    text.write_text("no PEM\n")
    another = authority.sign("another")
    chains = tmp_path / "late_leaf.pem", tmp_path / "late_signer.pem"
    chains[0].write_bytes(late.certificate.read_bytes() + authority.certificate.read_bytes())
    chains[1].write_bytes(pair.certificate.read_bytes() + late.certificate.read_bytes())
    for certificate, key, sentence in (
        (tmp_path / "none", pair.key, "--tls_certificate={0}: it cannot be read: No such file"),
        (text, pair.key, "--tls_certificate={0}: it has no certificate in PEM"),
        (late.certificate, late.key, "--tls_certificate={0}: its certificate expired at 20"),
        (chains[0], late.key, "--tls_certificate={0}: its certificate expired at 20"),
        (chains[1], pair.key, "--tls_certificate={0}: its certificate expired at 20"),
        (pair.certificate, another.key, "--tls_key={1}: it is not the key of"),
        (pair.certificate, text, "--tls_key={1}: it has no private key in PEM"),
    ):
        code, said = refused(f"--tls_certificate={certificate}", f"--tls_key={key}")
        assert code == 2
        assert said.startswith("counterweight-server: " + sentence.format(certificate, key))
        assert said.count("\n") == 1
    code, said = refused(*pair.flags(), f"--tls_client_ca={text}")
    assert (code, said) == (
        2,
        f"counterweight-server: --tls_client_ca={text}: it has no certificate in PEM\n",
    )


def test_flags_that_need_each_other(pair: Pair) -> None:
    for flags, name in (
        (pair.flags()[:1], "--tls_key"),
        (["--tls_client_ca=ca"], "--tls_certificate"),
        ([*pair.flags(), "--tls_client_names=a"], "--tls_client_ca"),
    ):
        code, said = refused(*flags)
        assert code == 2
        assert name in said


def test_only_tls_leaves_loopback(start_server: StartServer, pair: Pair) -> None:
    code, said = refused("--listen=0.0.0.0:0", "--tokens=tokens")
    assert code == 2
    assert "without --tls_certificate tokens can be read on the way" in said
    assert start_server(*pair.flags(), listen="0.0.0.0:0").address


def test_a_probe_has_the_certificate_of_its_server(
    start_server: StartServer,
    mutual: ServerProcess,
    authority: Authority,
    other: Authority,
    pair: Pair,
    folder: pathlib.Path,
) -> None:
    def probe(target: str, *flags: str) -> tuple[int, str]:
        ended = subprocess.run(
            [str(binary()), f"--probe={target}", "--probe_timeout=5", *flags],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )
        return ended.returncode, ended.stdout + ended.stderr

    flags = pair.flags()
    client_ca = f"--tls_client_ca={authority.certificate}"
    for own in (flags, [*flags, client_ca]):
        server = start_server(*own)
        serving = f"counterweight-server: {server.address} is SERVING\n"
        assert probe(server.address, *own) == (0, serving)
        for others in ([], other.sign("probe").flags()):
            code, sentence = probe(server.address, *others)
            assert code == 1
            assert "did not tell its health: UNAVAILABLE" in sentence
        server.stop()
    # Unix sockets are not encrypted.
    server = start_server(*flags, listen=f"unix:{folder}/probed_with_tls")
    assert probe(server.address, *flags)[0] == 0
    # Its certificate has none of the clients' names.
    code, sentence = probe(mutual.address, *flags)
    assert code == 1
    assert "PERMISSION_DENIED" in sentence
    code, sentence = probe(mutual.address, f"--tls_certificate={folder}/none", flags[1])
    assert code == 1
    assert "/none: it cannot be read: No such file or directory" in sentence
    code, sentence = probe(mutual.address, flags[0])
    assert code == 2
    assert "--tls_key" in sentence
