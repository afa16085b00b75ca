"""Information from a server about itself and its methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from counterweight_rl.config import CorrectionConfig


@dataclass(frozen=True)
class ParameterInfo:
    """A parameter of a named method.

    Attributes:
        name: Keyword argument of ``Preset``.
        unit: "ratio", "nats", "probability", "fraction", or one made of "advantage" and "nat";
            empty for a pure number.
        default_value: Value of an absent parameter.
        description: Meaning, range included.
    """

    name: str
    unit: str
    default_value: float
    description: str


@dataclass(frozen=True)
class MethodInfo:
    """A row of the methods table.

    Attributes:
        name: Name for ``method=`` and ``Preset``.
        origin: System that defines it: "counterweight", "verl", "trl", "skyrl", "openrlhf".
        origin_name: Name in that system; may be empty.
        summary: One sentence.
        reference: Paper or document that defines it.
        config: The method spelled out, with default parameters.
        parameters: Parameters that ``Preset`` can set.
        formula: Formula in the symbols of kernels/METHODS.md.
        when_to_use: One sentence.
        equivalents: The same method with default parameters in other systems' blocks: system, and
            block as JSON for ``Dialect``. kernels/METHODS.md also lists blocks that differ
            somewhere.
    """

    name: str
    origin: str
    origin_name: str
    summary: str
    reference: str
    config: CorrectionConfig
    parameters: tuple[ParameterInfo, ...]
    formula: str
    when_to_use: str
    equivalents: Mapping[str, str]


@dataclass(frozen=True)
class Device:
    """An accelerator.

    Attributes:
        index: The driver's index.
        name: The driver's name.
        memory_bytes: Memory, bytes.
        uuid: 16 bytes, the same in every process; empty if the server does not report it.
    """

    index: int
    name: str
    memory_bytes: int
    uuid: bytes = b""


@dataclass(frozen=True)
class Limits:
    """Limits of a request; all inclusive.

    Attributes:
        max_message_bytes: Bytes of one message, decompressed.
        max_tokens: Positions of one request, masked ones included.
        max_sequences: Sequences of one request.
        max_rules: Rejection rules of one configuration.
        max_chunk_bytes: Bytes of one chunk of a stream.
        max_bytes_in_flight: Bytes of input, scratch and output of all concurrent requests, and so
            of one.
        max_shared_memory_bytes: Bytes of the memory that one client may share; 0: none.
    """

    max_message_bytes: int
    max_tokens: int
    max_sequences: int
    max_rules: int
    max_chunk_bytes: int
    max_bytes_in_flight: int
    max_shared_memory_bytes: int


@dataclass(frozen=True)
class Release:
    """A release at which answers changed.

    Attributes:
        version: As ``Dialect.release`` takes it: "0.9.1".
        change: What changed, in a clause; empty for the first.
    """

    version: str
    change: str


@dataclass(frozen=True)
class DialectReleases:
    """The releases of a system at which answers changed.

    Attributes:
        system: As in ``Dialect.system``.
        releases: Ascending. The first is the oldest supported one, the last the newest whose
            answers were compared.
    """

    system: str
    releases: tuple[Release, ...]


@dataclass(frozen=True)
class ServerInfo:
    """The server's identity and limits.

    Attributes:
        version: Semantic version of the server.
        revision: Source revision, or "unknown".
        numerics_version: Changes when any bit of any answer changes.
        backend: "cpu" or "cuda".
        instruction_set: The CPU backend's: "x86-64-v3", "x86-64-v4", "generic".
        threads: Worker threads of the CPU backend.
        devices: Accelerators in use; empty for the CPU backend.
        limits: Limits of a request.
        dialects: Systems that ``Dialect`` may name.
        dialect_releases: Releases of these systems that ``Dialect.release`` can name.
        features: Optional parts of the contract that the server supports.
        shared_memory_socket: Path of the socket that registers memory; reported over Unix sockets
            only. Empty: none.
    """

    version: str
    revision: str
    numerics_version: int
    backend: str
    instruction_set: str
    threads: int
    devices: tuple[Device, ...]
    limits: Limits
    dialects: tuple[str, ...]
    dialect_releases: tuple[DialectReleases, ...]
    features: tuple[str, ...]
    shared_memory_socket: str
