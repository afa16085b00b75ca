"""Chooses the transport of a batch by the caller's choice, the server's offers and the size."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import Literal, get_args

from counterweight_rl._version import __version__
from counterweight_rl.errors import CounterweightError, UnavailableError
from counterweight_rl.info import Limits, ServerInfo
from counterweight_rl.settings import read_count
from counterweight_rl.shared_memory.pool import Pool
from counterweight_rl.shared_memory.region import SUPPORTED
from counterweight_rl.shared_memory.registry import UnusableError
from counterweight_rl.status import StatusCode
from counterweight_rl.suggestions import did_you_mean
from counterweight_rl.transport.target import Target

Transport = Literal["auto", "unary", "stream", "shared_memory"]

SMALL_BYTES = 2 << 20
"""Batches with fewer bytes of tensors travel as one message."""
DEFAULT_CHUNK_BYTES = 2 << 20
MAX_CHUNK_BYTES = 16 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Capabilities:
    """A server's capabilities beyond ``Correct``.

    Attributes:
        stream: ``CorrectStream``.
        max_chunk_bytes: Largest chunk, bytes; 0: unknown.
        socket: Path of the socket for shared memory; empty if there is none.
        max_shared_bytes: Limit of one client's shared bytes.
        devices: UUIDs of the devices with memory that can be shared.
        device_parts: Whether that includes memory that is mapped in parts.
        version: The server's; empty: unknown.
    """

    stream: bool = False
    max_chunk_bytes: int = 0
    socket: str = ""
    max_shared_bytes: int = 0
    devices: frozenset[bytes] = frozenset()
    device_parts: bool = False
    version: str = ""

    @staticmethod
    def of(info: ServerInfo) -> Capabilities:
        """Returns those that a server reports."""
        limits: Limits | None = info.limits
        shares = "shared_memory" in info.features
        return Capabilities(
            "stream" in info.features,
            limits.max_chunk_bytes if limits else 0,
            info.shared_memory_socket if shares else "",
            limits.max_shared_memory_bytes if limits else 0,
            frozenset(
                device.uuid for device in info.devices if shares and "cuda_ipc" in info.features
            ),
            "cuda_parts" in info.features,
            info.version,
        )


class Router:
    """Chooses for one client; reads the server's capabilities once, at their first use."""

    def __init__(self, target: Target, transport: Transport, chunk_bytes: int) -> None:
        """Takes the arguments of ``Client``.

        Raises:
            TypeError: ``chunk_bytes`` is not an int.
            ValueError: An unknown transport, or a size out of its range.
        """
        if transport not in get_args(Transport):
            choices = get_args(Transport)
            advice = did_you_mean(transport, choices)
            raise ValueError(
                f"transport must be one of {', '.join(choices)}; got {transport!r}{advice}"
            )
        self.transport = transport
        self._chunk_bytes = read_count("chunk_bytes", chunk_bytes, 1, MAX_CHUNK_BYTES)
        # A path names the same file for both ends only on one machine.
        self._local = target.text.startswith("unix:") and SUPPORTED
        self.capabilities: Capabilities | None = None
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._stopped = False
        self._closed = False
        self._warned = False

    def learn(self, info: ServerInfo) -> None:
        """Takes what the server reports."""
        self.capabilities = Capabilities.of(info)
        self.compare_versions(self.capabilities.version)

    def compare_versions(self, server: str) -> None:
        """Warns once of a server with answers that this package may not understand in full."""
        if not server or _significant(server) == _significant(__version__):
            return
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            _log.warning(
                "the client has version %s, the server %s; newer parts of its answers are skipped",
                __version__,
                server,
            )

    def may_share(self) -> bool:
        """Returns whether the target and the caller's choice permit shared memory."""
        return self._local and self.transport in ("auto", "shared_memory")

    def asks(self, num_bytes: int) -> bool:
        """Returns whether the choice needs capabilities that are unknown."""
        if self.capabilities is not None or self.transport == "unary":
            return False
        return self.transport != "auto" or num_bytes >= SMALL_BYTES

    def choose(self, num_bytes: int) -> Transport:
        """Returns the transport of a batch of so many bytes.

        Raises:
            CounterweightError: The caller chose shared memory, and the server offers none.
        """
        capabilities = self.capabilities or Capabilities()
        if self.transport == "unary" or (self.transport == "auto" and num_bytes < SMALL_BYTES):
            return "unary"
        if self.may_share() and capabilities.socket:
            return "shared_memory"
        if self.transport == "shared_memory":
            raise _not_shared(
                "the server offers none over this connection"
                if self._local
                else "it needs Linux and a target unix:..."
            )
        return "stream" if self.transport == "stream" or capabilities.stream else "unary"

    def without_shared_memory(self, why: UnusableError) -> Transport:
        """Returns the transport of a batch for which shared memory failed.

        Raises:
            CounterweightError: The caller chose shared memory.
        """
        if self.transport == "shared_memory" and why.is_late:
            raise UnavailableError(
                f"transport='shared_memory' is not possible now: {why}"
            ) from None
        if self.transport == "shared_memory":
            raise _not_shared(str(why)) from None
        capabilities = self.capabilities or Capabilities()
        if why.lasting:
            self.capabilities = replace(capabilities, socket="")
        way: Transport = "stream" if capabilities.stream else "unary"
        _log.debug("no shared memory, so %s: %s", way, why)
        return way

    def falls_back(self, failure: CounterweightError) -> bool:
        """Learns from a failure; True: another transport may succeed at once."""
        code = failure.code
        if code is StatusCode.RESOURCE_EXHAUSTED and self._pool is not None:
            self._pool.trim()  # the server counts the memory of idle regions
        if isinstance(failure, UnavailableError):
            self.capabilities = None  # the next server may be another one
        if code is not StatusCode.UNIMPLEMENTED or self.transport != "auto":
            return False
        if self.capabilities is None or not self.capabilities.stream:
            return False
        # An older server behind the same address than the one that offered streams.
        self.capabilities = replace(self.capabilities, stream=False)
        return True

    def pool(self) -> Pool:
        """Returns the shared memory of the offered socket."""
        capabilities = self.capabilities or Capabilities()
        with self._lock:
            offer = (
                capabilities.socket,
                capabilities.max_shared_bytes,
                capabilities.devices,
                capabilities.device_parts,
            )
            if self._pool is None:
                self._pool = Pool(*offer)
            elif capabilities.socket:
                self._pool.move_to(*offer)
            if self._stopped:
                self._pool.stop()
            if self._closed:
                self._pool.close()
            return self._pool

    def pool_of(self, num_bytes: int) -> Pool | None:
        """Returns the pool if a batch of that size would use it, as far as is known."""
        if not self.may_share() or self.capabilities is None or not self.capabilities.socket:
            return None
        return self.pool() if self.choose(num_bytes) == "shared_memory" else None

    def pool_for_arrays(self) -> Pool | None:
        """Returns the pool, unless the server offers no shared memory."""
        return self.pool() if self.capabilities is None or self.capabilities.socket else None

    def stop(self) -> None:
        """Ends waits for the server's end of shared memory, and permits no other. Idempotent."""
        with self._lock:
            self._stopped = True
            if self._pool is not None:
                self._pool.stop()

    def close(self) -> None:
        """Frees all shared memory. Idempotent."""
        with self._lock:
            self._closed = True
            if self._pool is not None:
                self._pool.close()

    @property
    def chunk_bytes(self) -> int:
        """Size of the chunks to send."""
        limit = self.capabilities.max_chunk_bytes if self.capabilities is not None else 0
        return min(self._chunk_bytes, limit) if limit else self._chunk_bytes


def _not_shared(why: str) -> CounterweightError:
    return CounterweightError(
        f"transport='shared_memory' is not possible: {why}",
        code=StatusCode.FAILED_PRECONDITION,
    )


def _significant(version: str) -> str:
    """Returns a version up to its first number that is not 0."""
    numbers = version.split(".")
    zeros = next((i for i, number in enumerate(numbers) if number != "0"), len(numbers))
    return ".".join(numbers[: zeros + 1])
