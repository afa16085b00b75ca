"""The certificate and the token of a client, also from files that change."""

from __future__ import annotations

import copy
import os
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from counterweight_rl.transport.channel import TlsConfig, connect, encrypts, read_small_file
from counterweight_rl.transport.target import Target

if TYPE_CHECKING:
    import grpc

T = TypeVar("T")

# A channel with changed files gets no new calls; its calls in flight get this long.
_RETIRED_SECONDS = 600.0


class Access:
    """The metadata and the channels of one client. Thread-safe.

    Attributes:
        target: The server.
    """

    def __init__(
        self,
        target: Target,
        tls: TlsConfig | grpc.ChannelCredentials | None,
        token: str | None,
        token_file: str | os.PathLike[str] | None,
        allow_insecure_token: bool,
    ) -> None:
        """Reads the files once.

        Raises:
            TypeError: An argument is of a wrong type; the message names it.
            ValueError: A file or a token is not fit, or the token could be read on its way.
        """
        _check_type_of_tls(tls)
        if not isinstance(allow_insecure_token, bool):
            kind = type(allow_insecure_token).__name__
            raise TypeError(f"allow_insecure_token must be a bool, not {kind}")
        self.target = target
        self._tls = tls
        # The server keeps its queue fair between names.
        self._name = ("counterweight-client", uuid.uuid4().hex)
        self._token: Callable[[], str] | None = None
        if token is not None and token_file is not None:
            raise ValueError("token and token_file exclude each other")
        if token is not None:
            fixed = _checked_token(token, "token")
            self._token = lambda: fixed
        elif token_file is not None:
            path = _path(token_file)
            self._token = Watched([path], lambda: _read_token(path)).get
        is_readable = self._token is not None and not encrypts(tls)
        # A proxy would read the token.
        self._direct = target.is_direct or is_readable
        if is_readable and not allow_insecure_token and not target.is_local:
            raise ValueError(
                f"a token for {target.text} could be read on its way, as nothing is encrypted: "
                "pass tls=cw.TlsConfig(...), or allow_insecure_token=True"
            )
        self._credentials: Watched[grpc.ChannelCredentials] | None = None
        if isinstance(tls, TlsConfig):
            self._credentials = Watched(tls.paths(), tls.credentials)
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._channel: Any = None
        self._channel_credentials: Any = None
        self._retired: list[tuple[float, Any]] = []

    def another(self) -> Access:
        """Returns one with the same settings, and channels of its own."""
        made = copy.copy(self)
        made._begin()
        return made

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata of a call that begins now."""
        if self._token is None:
            return (self._name,)
        return (self._name, ("authorization", f"Bearer {self._token()}"))

    def channel(self, library: Any) -> Any:
        """Returns the channel of ``library``, grpc or grpc.aio, for a call that begins now."""
        with self._lock:
            if self._closed:
                if self._channel is None:
                    raise ValueError("the client is closed")  # as grpc's message
                return self._channel
            credentials = self._tls if self._credentials is None else self._credentials.get()
            if self._channel is None or credentials is not self._channel_credentials:
                now = time.monotonic()
                self._retired = [each for each in self._retired if each[0] > now]
                if self._channel is not None:
                    self._retired.append((now + _RETIRED_SECONDS, self._channel))
                name = self._tls.server_name if isinstance(self._tls, TlsConfig) else None
                self._channel = connect(
                    library, self.target, credentials, name, direct=self._direct
                )
                self._channel_credentials = credentials
            return self._channel

    def close(self) -> list[Any]:
        """Returns the channels to be closed; ``channel`` creates no other."""
        with self._lock:
            self._closed = True
            channels = [channel for _, channel in self._retired]
            if self._channel is not None:
                channels.append(self._channel)
            return channels


class Watched(Generic[T]):
    """A value from files, read again when they change. Wrong files then change nothing."""

    def __init__(self, paths: list[Path], read: Callable[[], T]) -> None:
        """Reads them.

        Raises:
            ValueError: As ``read`` does.
        """
        self._paths = paths
        self._read = read
        self._lock = threading.Lock()
        self._stamps = self._look()
        self._value = read()

    def get(self) -> T:
        """Returns the value of the files, or the last valid one."""
        with self._lock:
            stamps = self._look()
            if stamps != self._stamps:
                try:
                    self._value = self._read()
                    self._stamps = stamps
                except ValueError:
                    pass  # being written, perhaps; the next call looks again
            return self._value

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read_token(path: Path) -> str:
    content = read_small_file(path, f"token_file: {path}")
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise ValueError(f"token_file: {path} cannot be read: {error}") from None
    return _checked_token(text.strip(), f"token_file: {path}")


def _path(token_file: str | os.PathLike[str]) -> Path:
    if not isinstance(token_file, (str, os.PathLike)):
        raise TypeError(f"token_file must be a path, not {type(token_file).__name__}")
    return Path(token_file)


def _check_type_of_tls(tls: object) -> None:
    if tls is None or isinstance(tls, TlsConfig):
        return
    import grpc

    if not isinstance(tls, grpc.ChannelCredentials):
        raise TypeError(
            f"tls must be a TlsConfig or grpc's channel credentials, not {type(tls).__name__}"
        )


def _checked_token(token: str, where: str) -> str:
    if not isinstance(token, str):
        raise TypeError(f"{where} must be a str, not {type(token).__name__}")
    if not token or not all("!" <= character <= "~" for character in token):
        raise ValueError(f"{where}: a token has visible ASCII characters, and no blanks")
    return token
