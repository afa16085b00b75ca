"""The grammar of targets ``local:``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl

from counterweight_rl.suggestions import did_you_mean

_SCHEME = "local:"
_BACKENDS = ("cpu", "cuda")
# The settings of each backend with the largest value that one may have.
_LIMITS = {"max_tokens": 1 << 40, "max_sequences": 1 << 40}
_SETTINGS = {"cpu": {"threads": 1024, **_LIMITS}, "cuda": {"device": 1023, **_LIMITS}}
# The settings that apply to servers only, where the default is not None.
_OF_SERVERS = {"transport": "auto", "on_unavailable": "raise", "allow_insecure_token": False}
_SMALLEST = {"threads": 1, "device": 0, "max_tokens": 1, "max_sequences": 1}


@dataclass(frozen=True)
class LocalTarget:
    """Where batches are computed in this process.

    Attributes:
        backend: "cpu" or "cuda".
        threads: Threads of the CPU backend, the caller's included; 0: as many as this process may
            run on.
        device: The device of the CUDA backend, as CUDA counts.
        max_tokens: Most positions of a batch, masked ones included. The memory is the caller's, so
            the default is the most that the library can have.
        max_sequences: Most sequences of a batch, which may be empty.
    """

    backend: Literal["cpu", "cuda"] = "cpu"
    threads: int = 0
    device: int = 0
    max_tokens: int = _LIMITS["max_tokens"]
    max_sequences: int = 1 << 26


def read_target(target: str, source: str = "target") -> LocalTarget | None:
    """Reads "local:", "local:?threads=4" or "local:cuda?device=1"; None: another target.

    ``source`` is what the caller called it.

    Raises:
        ValueError: No such backend or setting, or a number out of its range.
    """
    if not isinstance(target, str) or not target.startswith(_SCHEME):
        return None
    backend, _, query = target.removeprefix(_SCHEME).partition("?")
    backend = backend or "cpu"
    if backend not in _BACKENDS:
        raise ValueError(
            f"{source} {target!r}: the backend must be one of {', '.join(_BACKENDS)}; "
            f"got {backend!r}{did_you_mean(backend, _BACKENDS)}"
        )
    settings: dict[str, int] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        known = _SETTINGS[backend]
        if name not in known or name in settings:
            problem = "was given twice" if name in settings else f"local:{backend} has no such"
            raise ValueError(
                f"{source} {target!r}: {name}: {problem} setting; it has {', '.join(known)}"
            )
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
        if not _SMALLEST[name] <= number <= known[name]:
            raise ValueError(
                f"{source} {target!r}: {name} must be from {_SMALLEST[name]} to {known[name]}; "
                f"got {text!r}"
            )
        settings[name] = number
    return LocalTarget("cuda" if backend == "cuda" else "cpu", **settings)


def check_local(**settings: object) -> None:
    """Refuses settings that apply to servers only, if they are not the default.

    Raises:
        ValueError: There is one.
    """
    for name, value in settings.items():
        if value != _OF_SERVERS.get(name):
            raise ValueError(f'{name} is for a server, and a target "local:" has none')
