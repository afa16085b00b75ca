"""The flags of every command that computes, and the client that they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from counterweight_rl.cli.problems import InputError
from counterweight_rl.client import Client
from counterweight_rl.local.target import read_target
from counterweight_rl.settings import read_seconds
from counterweight_rl.transport.channel import TlsConfig
from counterweight_rl.transport.target import read_server

_VARIABLE = "COUNTERWEIGHT_TARGET"


@dataclass(frozen=True)
class Connection:
    """The flags of every command that computes."""

    target: str
    timeout: float
    token_file: str | None
    tls: TlsConfig | None

    def open(self, target: str | None = None, **settings: Any) -> Client:
        """A client of the target.

        Raises:
            InputError: A flag is wrong, or grpcio is missing.
        """
        try:
            return Client(
                target or self.target,
                timeout=self.timeout,
                token_file=self.token_file,
                tls=self.tls,
                **settings,
            )
        except (ValueError, ImportError) as error:
            raise InputError(str(error)) from None


def _check(target: str, timeout: float) -> None:
    source = click.get_current_context().get_parameter_source("target")
    name = _VARIABLE if source is ParameterSource.ENVIRONMENT else "--target"
    try:
        if read_target(target, name) is None:
            read_server(target, name)
        read_seconds("--timeout", timeout)
    except ValueError as error:
        raise InputError(str(error)) from None


def connected(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags of a connection, which the command gets as one argument."""

    def with_connection(**arguments: Any) -> Any:
        files = {
            "root_certificates": arguments.pop("tls_ca"),
            "certificate_chain": arguments.pop("tls_cert"),
            "private_key": arguments.pop("tls_key"),
            "server_name": arguments.pop("tls_server_name"),
        }
        given = {name: value for name, value in files.items() if value is not None}
        _check(arguments["target"], arguments["timeout"])
        tls = TlsConfig(**given) if arguments.pop("tls") or given else None
        connection = Connection(
            arguments.pop("target"), arguments.pop("timeout"), arguments.pop("token_file"), tls
        )
        return command(connection, **arguments)

    with_connection.__name__ = command.__name__
    with_connection.__doc__ = command.__doc__
    for option in reversed(
        [
            click.option(
                "--target",
                "-t",
                default="local:",
                envvar=_VARIABLE,
                show_default=True,
                help='"local:" computes in this process; a server is "host:port" or "unix:/path". '
                "Default: the environment's COUNTERWEIGHT_TARGET, if it is set.",
            ),
            click.option(
                "--timeout", type=float, default=60.0, show_default=True, help="Seconds of a call."
            ),
            click.option(
                "--token-file",
                envvar="COUNTERWEIGHT_TOKEN_FILE",
                help="File with the server's token.",
            ),
            click.option("--tls", is_flag=True, help="Speak TLS with the system's authorities."),
            click.option("--tls-ca", help="PEM file of the authorities to trust."),
            click.option("--tls-cert", help="PEM file of the client's certificate."),
            click.option("--tls-key", help="PEM file of its key."),
            click.option("--tls-server-name", help="Name in the server's certificate."),
        ]
    ):
        with_connection = option(with_connection)
    return with_connection
