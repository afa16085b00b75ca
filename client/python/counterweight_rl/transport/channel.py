"""Connects both clients."""

from __future__ import annotations

import importlib.util
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterweight_rl._version import __version__
from counterweight_rl.transport.target import Target

if TYPE_CHECKING:
    import grpc

SERVICE = "/counterweight.v1.CorrectionService/"

_UNLIMITED = -1  # grpc's value for no limit; the server's own limits apply
# After a failure to connect, calls fail at once until the channel tries again. grpc's own pauses
# grow to two minutes, and it resolves a name at most twice a minute, so a client would notice a
# returned server late.
_RECONNECTION = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 5000),  # limit of one attempt to connect
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
]
# A frozen server or a lost machine closes no connection. Pings while a call waits notice it before
# the call's deadline; client/README.md has the numbers and what servers accept.
_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Since gRPC 1.58, for pings that measure the bandwidth; keepalive waits behind them.
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),  # 0: no limit; an answer may take long to compute
]
_OPTIONS = [
    ("grpc.max_receive_message_length", _UNLIMITED),
    ("grpc.max_send_message_length", _UNLIMITED),
    ("grpc.primary_user_agent", f"counterweight-python/{__version__}"),
    *_RECONNECTION,
    *_KEEPALIVE,
]

# A name or list may mean several servers, such as a headless Service's; calls take turns.
_TURNS = ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}')

# Passes by the proxies of grpc_proxy, https_proxy and http_proxy, and of GRPC_ADDRESS_HTTP_PROXY.
_NO_PROXY = [("grpc.enable_http_proxy", 0), ("grpc.address_http_proxy_enabled_addresses", "")]

Pem = bytes | str | os.PathLike[str] | None


@dataclass(frozen=True)
class TlsConfig:
    """TLS settings; each in PEM, as bytes or the path of a file.

    When a file changes, later calls use the new content; calls in flight go on.

    Attributes:
        root_certificates: Trusted authorities. None: the system's, as grpc finds them.
        private_key: The client's key, if the server requires one.
        certificate_chain: The client's certificate, if the server requires one.
        server_name: The name that the server's certificate must have. None: the target's host.
    """

    root_certificates: Pem = None
    private_key: Pem = field(default=None, repr=False)
    certificate_chain: Pem = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        """Refuses values of other types, and PEM where a path is expected.

        Raises:
            TypeError: There is one; the message names the field and has no content of it.
        """
        for name in ("root_certificates", "private_key", "certificate_chain"):
            pem = getattr(self, name)
            if not (pem is None or isinstance(pem, (bytes, str, os.PathLike))):
                raise TypeError(f"TlsConfig.{name} must be bytes or a path, not {_kind(pem)}")
            if isinstance(pem, str) and "-----BEGIN" in pem:
                raise TypeError(f"TlsConfig.{name}: a str is the path of a file; pass PEM as bytes")
        if not isinstance(self.server_name, (str, type(None))):
            raise TypeError(f"TlsConfig.server_name must be a str, not {_kind(self.server_name)}")

    def paths(self) -> list[Path]:
        """The files among them."""
        fields = (self.root_certificates, self.private_key, self.certificate_chain)
        return [Path(pem) for pem in fields if pem is not None and not isinstance(pem, bytes)]

    def credentials(self) -> grpc.ChannelCredentials:
        """As grpc takes them.

        Raises:
            ValueError: A file cannot be read or has no PEM, or a key has no certificate.
        """
        import grpc

        if (self.private_key is None) != (self.certificate_chain is None):
            raise ValueError("TlsConfig: private_key and certificate_chain need each other")
        return grpc.ssl_channel_credentials(
            _read("root_certificates", self.root_certificates),
            _read("private_key", self.private_key),
            _read("certificate_chain", self.certificate_chain),
        )


def check_installed(target: str) -> None:
    """Refuses a target that needs a server if grpcio is missing.

    Raises:
        ImportError: It is missing.
    """
    if importlib.util.find_spec("grpc") is None:
        raise ImportError(
            f'target {target!r} needs grpcio: pip install "counterweight-rl[remote]"; '
            '"local:" needs nothing but this package'
        )


def read_small_file(path: str | os.PathLike[str], where: str) -> bytes:
    """Returns the content of a regular file.

    Raises:
        ValueError: It cannot be read, or is a pipe or a device, on which a call would wait.
            ``where`` begins the sentence.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{where} is not a regular file")
            return file.read()
    except OSError as error:
        raise ValueError(f"{where} cannot be read: {error.strerror}") from None


def _kind(value: object) -> str:
    return type(value).__name__


def _read(name: str, pem: Pem) -> bytes | None:
    if pem is None:
        return None
    where = f"TlsConfig.{name}"
    if not isinstance(pem, bytes):
        where = f"{where}: {os.fspath(pem)}"
        pem = read_small_file(pem, where)
    if b"-----BEGIN " not in pem:
        raise ValueError(f"{where} has no PEM")
    return pem


def encrypts(tls: TlsConfig | grpc.ChannelCredentials | None) -> bool:
    """Returns whether the connection is encrypted; grpc has credentials without TLS too."""
    # grpc does not export the types.
    kind = type(getattr(tls, "_credentials", None)).__name__
    return tls is not None and kind not in ("InsecureChannelCredentials", "LocalChannelCredentials")


def connect(
    library: Any,
    target: Target,
    credentials: grpc.ChannelCredentials | None,
    server_name: str | None = None,
    *,
    direct: bool,
) -> Any:
    """Returns a channel of ``library``, grpc or grpc.aio; sends nothing yet.

    With ``direct`` it passes by the proxies of the environment.
    """
    options: list[tuple[str, Any]] = list(_OPTIONS)
    if target.takes_turns:
        options.append(_TURNS)
    if direct:
        options += _NO_PROXY
    if credentials is None:
        return library.insecure_channel(target.text, options)
    if server_name is not None:
        options.append(("grpc.ssl_target_name_override", server_name))
    return library.secure_channel(target.text, credentials, options)
