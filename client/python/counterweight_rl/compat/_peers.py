"""Forwards names that remain the peers' own."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def getattr_from(module: str, names: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a module that forwards other modules' names.

    A trainer that changes the module name in an import statement imports all names of the statement
    from the new module. A name that this package does not define is imported from the peer on first
    use, so a trainer that uses none of them does not need the peer.

    Args:
        module: The module's own name.
        names: Names by the peer's module that defines them.
    """
    homes = {name: home for home, of_home in names.items() for name in of_home}

    def getattr_of_module(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            peer = load(homes[name])
        except NotInstalledError as error:
            raise NotInstalledError(f"{module}.{name}: {error}", name=error.name) from error
        return getattr(peer, name)

    return getattr_of_module


class NotInstalledError(ImportError):
    """The peer is not installed."""


def load(home: str) -> ModuleType:
    """Imports a module of a peer.

    Raises:
        NotInstalledError: The peer is not installed.
        ImportError: The peer is installed, but its module cannot be imported.
    """
    try:
        return importlib.import_module(home)
    except ModuleNotFoundError as error:
        peer = home.partition(".")[0]
        if error.name != peer:
            raise
        raise NotInstalledError(
            f"{home} is needed, and {peer} is not installed: pip install {peer}", name=peer
        ) from error
