"""The metrics port over TLS and IPv6, with certificates of clients and tokens."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import pathlib
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping

import counterweight_rl as cw
import pytest
from certificates import Authority, Pair, replace
from prometheus_process import Prometheus
from server_process import DEADLINE_SECONDS, ServerProcess

pytestmark = pytest.mark.server_only

StartServer = Callable[..., ServerProcess]
TOKEN = "scraper-0123456789abcdef"
# Prometheus' job; deploy/prometheus/README.md shows the same.
ALLOWED = "DNS:prometheus.example"


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
def encrypted(start_server: StartServer, pair: Pair) -> ServerProcess:
    return start_server(*pair.flags())


@pytest.fixture(scope="module")
def guarded(
    start_server: StartServer, authority: Authority, pair: Pair, made: pathlib.Path
) -> ServerProcess:
    """Wants a certificate by one name, and a token."""
    tokens = made / "tokens"
    tokens.write_text(f"scraper sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
    return start_server(
        *pair.flags(),
        f"--tls_client_ca={authority.certificate}",
        "--tls_client_names=prometheus.example",
        f"--tokens={tokens}",
    )


def trusting(authority: Authority, client: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    return context


def get(
    server: ServerProcess,
    context: ssl.SSLContext | None,
    path: str = "/metrics",
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    url = server.metrics_url.removesuffix("/metrics") + path
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS, context=context) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def connect(server: ServerProcess) -> socket.socket:
    address = urllib.parse.urlsplit(server.metrics_url)
    assert address.hostname is not None
    return socket.create_connection((address.hostname, address.port or 0), DEADLINE_SECONDS)


def test_metrics_page_and_probes_over_tls(encrypted: ServerProcess, authority: Authority) -> None:
    assert encrypted.metrics_url.startswith("https://127.0.0.1:")
    context = trusting(authority)
    code, page = get(encrypted, context)
    assert (code, b"\ncounterweight_ready 1\n" in page) == (200, True)
    assert get(encrypted, context, "/livez") == (200, b"ready\n")
    assert get(encrypted, context, "/readyz") == (200, b"ready\n")
    assert b"<title>Counterweight</title>" in get(encrypted, context, "/")[1]
    assert get(encrypted, context, "/none")[0] == 404


def test_both_ports_send_the_certificates_between(
    start_server: StartServer, authority: Authority
) -> None:
    """Who trusts the root alone can build the chain from what the server sends."""
    below = authority.intermediate("below")
    pair = below.sign("server-below")
    replace(pair.certificate, pair.certificate.read_bytes() + below.certificate.read_bytes())
    server = start_server(*pair.flags())
    assert get(server, trusting(authority))[0] == 200
    trusted = cw.TlsConfig(root_certificates=authority.certificate)
    with cw.Client(server.address, tls=trusted) as client:
        assert client.server_info().version


def test_both_ports_take_an_authority_that_another_signed(
    start_server: StartServer, authority: Authority, pair: Pair
) -> None:
    below = authority.intermediate("below-clients")
    client = below.sign("client-below", "DNS:prometheus.example")
    server = start_server(*pair.flags(), f"--tls_client_ca={below.certificate}")
    assert get(server, trusting(authority, client))[0] == 200
    trusted = cw.TlsConfig(
        root_certificates=authority.certificate,
        private_key=client.key,
        certificate_chain=client.certificate,
    )
    with cw.Client(server.address, tls=trusted) as connected:
        assert connected.server_info().version


def test_who_trusts_another_authority_reads_nothing(
    encrypted: ServerProcess, other: Authority
) -> None:
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        get(encrypted, trusting(other))


def test_plaintext_is_not_answered(encrypted: ServerProcess) -> None:
    with connect(encrypted) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP" not in client.recv(4096)


@pytest.mark.parametrize(("version", "served"), [("1_1", False), ("1_2", True), ("1_3", True)])
def test_versions_of_tls(encrypted: ServerProcess, version: str, served: bool) -> None:
    address = urllib.parse.urlsplit(encrypted.metrics_url).netloc
    answer = subprocess.run(
        ["openssl", "s_client", "-connect", address, f"-tls{version}"],
        input="",
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert ("Cipher is (NONE)" in answer.stdout) is not served


def test_answers_are_compressed_for_those_who_ask(
    encrypted: ServerProcess, authority: Authority
) -> None:
    code, packed = get(encrypted, trusting(authority), headers={"Accept-Encoding": "gzip"})
    assert code == 200
    assert b"\ncounterweight_ready 1\n" in gzip.decompress(packed)


def test_a_renewed_certificate_is_served_without_a_restart(
    start_server: StartServer, other: Authority, tmp_path: pathlib.Path
) -> None:
    old = Authority(tmp_path, "old")
    served = old.sign("server")
    server = start_server(*served.flags())
    assert get(server, trusting(old), "/livez")[0] == 200
    other.sign("server").copy_to(served)
    end = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            assert get(server, trusting(other), "/livez")[0] == 200
            break
        except urllib.error.URLError:
            assert time.monotonic() < end
            time.sleep(0.05)
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        get(server, trusting(old), "/livez")


def test_a_guarded_port_wants_certificate_and_token(
    guarded: ServerProcess, authority: Authority, other: Authority
) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    for sans in f"DNS:guest.example,{ALLOWED}", ALLOWED:
        scraper = trusting(authority, authority.sign("scraper", sans))
        assert get(guarded, scraper, headers=bearer)[0] == 200
    code, said = get(guarded, scraper)
    assert (code, b"wants a token" in said) == (401, True)
    code, said = get(guarded, trusting(authority), headers=bearer)
    assert (code, b"--tls_client_ca" in said) == (403, True)
    for sans in "DNS:guest.example", f"{ALLOWED}.guest":
        guest = trusting(authority, authority.sign("guest", sans))
        code, said = get(guarded, guest, headers=bearer)
        assert (code, b"--tls_client_names" in said) == (403, True)
    stranger = trusting(authority, other.sign("scraper", ALLOWED))
    with pytest.raises((OSError, urllib.error.URLError)):
        get(guarded, stranger, headers=bearer)
    # Kubernetes' probes have neither, and check no certificate.
    context = ssl._create_unverified_context()
    assert get(guarded, context, "/livez") == (200, b"ready\n")
    assert get(guarded, context, "/readyz") == (200, b"ready\n")
    for path in "/metrics", "/", "/page.json", "/none":
        assert get(guarded, context, path)[0] == 403


def test_prometheus_scrapes_a_guarded_port(
    guarded: ServerProcess,
    authority: Authority,
    tmp_path: pathlib.Path,
    tool: Callable[[str], str],
) -> None:
    client = authority.sign("prometheus", ALLOWED)
    (tmp_path / "token").write_text(TOKEN)
    prometheus = Prometheus(
        tool("prometheus"),
        tmp_path,
        [urllib.parse.urlsplit(guarded.metrics_url).netloc],
        scrape={
            "scheme": "https",
            "tls_config": {
                "ca_file": str(authority.certificate),
                "cert_file": str(client.certificate),
                "key_file": str(client.key),
            },
            "authorization": {"credentials_file": str(tmp_path / "token")},
        },
        # A handshake takes longer than the scrapes of other tests may on a busy machine.
        interval="1s",
    )
    try:
        prometheus.wait_for("counterweight_ready == 1")
    finally:
        prometheus.stop()


def test_slow_handshakes_delay_no_scrape(encrypted: ServerProcess, authority: Authority) -> None:
    context = trusting(authority)
    # The beginning of a ClientHello, which never ends.
    slow = []
    for i in range(300):
        slow.append(connect(encrypted))
        slow[-1].sendall(b"\x16\x03\x01\x02\x00"[: i % 6])
    assert get(encrypted, context)[0] == 200
    # Each is given up after 2 s, or earlier for want of room.
    for each in slow:
        with each, contextlib.suppress(ConnectionResetError):
            assert each.recv(1) == b""
    assert encrypted.metric("process_open_fds") < 200


def test_a_page_of_another_site_reads_nothing(
    start_server: StartServer, encrypted: ServerProcess, authority: Authority
) -> None:
    """A site may point its own name at this machine (DNS rebinding)."""
    server = start_server("--metrics_hosts=metrics.example,cw.example")

    def code(host: str, path: str = "/metrics") -> int:
        return get(server, None, path, {"Host": host})[0]

    port = urllib.parse.urlsplit(server.metrics_url).port
    for path in "/metrics", "/", "/page.json", "/none":
        assert code(f"attacker.example:{port}", path) == 421
        assert code("metrics.example.attacker.example", path) == 421
    # A probe learns one bit, by whatever name.
    assert code("attacker.example", "/livez") == 200
    own = socket.gethostname()
    for host in "127.0.0.1", "10.1.2.3", "[::1]:9464", "localhost", "cw", "CW.example:1", own:
        assert code(host) == 200, host
    # Over TLS a browser has compared the name with the certificate.
    assert get(encrypted, trusting(authority), headers={"Host": "any.example"})[0] == 200
    server.stop()


def test_metrics_may_stay_plaintext(start_server: StartServer, pair: Pair) -> None:
    server = start_server(*pair.flags(), "--metrics_tls=false")
    assert server.metrics_url.startswith("http://")
    assert server.metric("counterweight_tls_files_valid") == 1


@pytest.mark.parametrize("with_tls", [False, True])
def test_ipv6(start_server: StartServer, authority: Authority, with_tls: bool) -> None:
    flags = authority.sign("server6", "IP:::1").flags() if with_tls else []
    server = start_server(*flags, "--metrics_listen=[::1]:0")
    assert server.metrics_url.startswith(f"http{'s' * with_tls}://[::1]:")
    code, page = get(server, trusting(authority) if with_tls else None)
    assert (code, b"\ncounterweight_ready 1\n" in page) == (200, True)
