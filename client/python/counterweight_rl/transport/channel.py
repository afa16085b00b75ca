"""Connects both clients."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import grpc

from counterweight_rl._version import __version__

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
_OPTIONS = [
    ("grpc.max_receive_message_length", _UNLIMITED),
    ("grpc.max_send_message_length", _UNLIMITED),
    ("grpc.primary_user_agent", f"counterweight-python/{__version__}"),
    *_RECONNECTION,
]


@dataclass(frozen=True)
class TlsConfig:
    """TLS settings; all in PEM.

    Attributes:
        root_certificates: Trusted authorities. None: the system's, as grpc finds them.
        private_key: The client's key, if the server requires one.
        certificate_chain: The client's certificate, if the server requires one.
    """

    root_certificates: bytes | None = None
    private_key: bytes | None = None
    certificate_chain: bytes | None = None


def make_metadata() -> tuple[tuple[str, str], ...]:
    """Returns the metadata of all calls of a client: its id, for fairness between clients."""
    return (("counterweight-client", uuid.uuid4().hex),)


def connect(library: Any, target: str, tls: TlsConfig | grpc.ChannelCredentials | None) -> Any:
    """Returns a channel of ``library``, grpc or grpc.aio; sends nothing yet."""
    if tls is None:
        return library.insecure_channel(target, _OPTIONS)
    if isinstance(tls, TlsConfig):
        tls = grpc.ssl_channel_credentials(
            tls.root_certificates, tls.private_key, tls.certificate_chain
        )
    return library.secure_channel(target, tls, _OPTIONS)
