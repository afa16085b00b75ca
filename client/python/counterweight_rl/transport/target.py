"""The grammar of servers' addresses."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass
from urllib.parse import quote

from counterweight_rl.suggestions import did_you_mean

_SCHEMES = ("dns", "ipv4", "ipv6", "unix", "unix-abstract")
_FAMILIES = {"ipv4": 4, "ipv6": 6}
_LONGEST_PATH = 107  # bytes of sun_path, see unix(7), without the final 0
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\]")
_AUTHORITY = re.compile(r"[A-Za-z0-9.:\[\]_-]*")
# The names of loopback in /etc/hosts of Debian and Red Hat; RFC 6761 adds all of ".localhost".
_LOOPBACK_NAMES = (
    *("localhost", "localhost.localdomain", "localhost4", "localhost4.localdomain4"),
    *("localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback"),
)

_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Target:
    """The address of a server, or of several.

    Attributes:
        text: As gRPC takes it.
        socket: Address of the Unix socket as the kernel has it; empty: TCP.
        is_local: Whether data for every address surely stays on this machine.
        is_direct: Whether no proxy may get its data: one of the addresses may be on this machine,
            or a proxy would get only one of several.
        takes_turns: Whether it may be several servers.
    """

    text: str
    socket: bytes = b""
    is_local: bool = False
    is_direct: bool = False
    takes_turns: bool = False


class _WrongError(Exception):
    """Reason why a text is not an address."""


def read_server(target: str, name: str = "target") -> Target:
    """Reads the address of a server.

    Args:
        target: "host:port", "[IPv6]:port", "unix:PATH", "unix-abstract:NAME", "dns:///host:port",
            or a list, "ipv4:host:port,host:port" or "ipv6:[host]:port,[host]:port".
        name: What the caller called it.

    Raises:
        TypeError: It is not a str.
        ValueError: gRPC would refuse it at the first call, or dial another address than is written.
    """
    if not isinstance(target, str):
        raise TypeError(f"{name} must be a str, not {type(target).__name__}")
    scheme, colon, rest = target.partition(":")
    scheme = scheme.lower()
    try:
        if scheme == "local":
            raise _WrongError(
                'this is not a server; the target of this process begins with "local:"'
            )
        if colon and scheme in ("unix", "unix-abstract"):
            return _of_socket(scheme, rest)
        if re.search(r"\s", target):
            raise _WrongError("it has a blank")
        if colon and scheme in _SCHEMES:
            return _of_scheme(target, scheme, rest)
        if rest.startswith("//"):
            advice = did_you_mean(scheme, _SCHEMES) or '; write "host:port" without a scheme'
            raise _WrongError(f'"{scheme}://" is not the scheme of a server{advice}')
        return _of_addresses(target, [target])
    except _WrongError as wrong:
        # A URL may have a password.
        shown = re.sub(r"//[^/]*@", "//...@", target)
        raise ValueError(f"{name} {shown!r}: {wrong}") from None


def _may_stay_here(host: str) -> bool:
    """Returns whether a connection to a name, or an address without brackets, may be loopback."""
    name = host.lower().removesuffix(".")
    try:
        ip = _unmapped(ipaddress.ip_address(host))
    except ValueError:
        try:
            # As resolvers read "127.1".
            ip = ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return name in _LOOPBACK_NAMES or name.endswith(".localhost")
    # A connection to the unspecified address ends on this machine.
    return ip.is_loopback or ip.is_unspecified


def _unmapped(ip: _Ip) -> _Ip:
    return getattr(ip, "ipv4_mapped", None) or ip


def _of_socket(scheme: str, path: str) -> Target:
    if scheme == "unix" and path.startswith("//"):
        path = path.removeprefix("//")
        if not path.startswith("/"):
            raise _WrongError('the path after "unix://" is absolute: "unix:///path/to/socket"')
    if found := re.search(r"[\0-\x1f\x7f,?#]", path):
        raise _WrongError(f"a socket's path cannot have {found[0]!r} here")
    if path.endswith("/"):
        raise _WrongError("a folder is not a socket")
    encoded = os.fsencode(path)
    if not 0 < len(encoded) <= _LONGEST_PATH:
        raise _WrongError(
            f"a socket's path has 1 to {_LONGEST_PATH} bytes; this one has {len(encoded)}"
        )
    # gRPC would decode what looks like an escape.
    text = f"{scheme}:{quote(encoded)}"
    address = encoded if scheme == "unix" else b"\0" + encoded
    return Target(text, address, is_local=True, is_direct=True)


def _of_scheme(target: str, scheme: str, rest: str) -> Target:
    authority = ""
    if rest.startswith("//"):
        authority, slash, rest = rest.removeprefix("//").partition("/")
        if not (slash and _AUTHORITY.fullmatch(authority)) or (authority and scheme != "dns"):
            raise _WrongError(f'it must begin with "{scheme}:" or "{scheme}:///"')
    rest = rest.removeprefix("/")
    addresses = rest.split(",") if scheme in _FAMILIES else [rest]
    return _of_addresses(target, addresses, scheme, authority)


def _of_addresses(
    target: str, addresses: list[str], scheme: str = "", authority: str = ""
) -> Target:
    hosts = [_host(address) for address in addresses]
    local = []
    for host in hosts:
        ip = _ip(host)
        if scheme in _FAMILIES and (ip is None or ip.version != _FAMILIES[scheme]):
            raise _WrongError(f'"{scheme}:" takes addresses of IPv{_FAMILIES[scheme]}, not {host}')
        # Another server of names may have another "localhost".
        is_localhost = host.lower().removesuffix(".") == "localhost" and not authority
        local.append(is_localhost if ip is None else _unmapped(ip).is_loopback)
    # A list is as open as the farthest of its addresses.
    return Target(
        target,
        is_local=all(local),
        is_direct=len(hosts) > 1 or _may_stay_here(hosts[0].strip("[]")),
        takes_turns=bool(scheme),
    )


def _host(address: str) -> str:
    """Returns the host of an address with a valid port."""
    host, colon, port = address.rpartition(":")
    if colon and not host:
        raise _WrongError(f'{address!r} has no host; write "host:port"')
    if not colon or (host.startswith("[") and not host.endswith("]")):
        raise _WrongError(f'{address!r} has no port; write "host:port"')
    if "," in address:
        raise _WrongError('a list begins with "ipv4:" or "ipv6:"')
    if ":" in host and not host.startswith("["):
        raise _WrongError('an IPv6 address has brackets before its port, as in "[::1]:50051"')
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
    if not 0 < number <= 65535:
        raise _WrongError(f"the port must be from 1 to 65535; got {port!r}")
    return host


def _ip(host: str) -> _Ip | None:
    """Returns the host's address; None if it is a name."""
    try:
        if host.startswith("["):
            if not _IPV6.fullmatch(host):
                raise ValueError
            return ipaddress.IPv6Address(host[1:-1])
        if re.fullmatch(r"[0-9.]+", host):
            return ipaddress.IPv4Address(host)
    except ValueError:
        raise _WrongError(f"{host!r} is not an IP address") from None
    labels = host.removesuffix(".").split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise _WrongError(f"{host!r} is not the name of a host")
    return None
