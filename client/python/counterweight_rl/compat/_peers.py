"""Forwards names that remain the peers' own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

# Peers without a package of their name on PyPI.
_FROM_GIT = {
    "nemo_rl": "https://github.com/NVIDIA-NeMo/RL",
    "prime_rl": "https://github.com/PrimeIntellect-ai/prime-rl",
    "roll": "https://github.com/alibaba/ROLL",
}


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


def getattr_deriving(
    module: str, homes: Mapping[str, str], mixin: type, documentation: str
) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a module that has a peer's classes with a mixin before them.

    A class is made on first use, so the rest of the module does not need the peer.

    Args:
        module: The module's own name.
        homes: The peer's modules by the classes' names, there and here.
        mixin: The first base.
        documentation: The docstring of the classes.
    """

    def getattr_of_module(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        namespace = {"__module__": module, "__doc__": documentation}
        made = type(name, (mixin, getattr(load(homes[name]), name)), namespace)
        return vars(sys.modules[module]).setdefault(name, made)

    return getattr_of_module


class NotInstalledError(ImportError):
    """The peer is not installed."""


def replace(home: str, name: str, ours: Any) -> None:
    """Puts ``ours`` in place of a peer's object in each of its modules that is imported already.

    A module that imported the object earlier holds it under its own name.

    Args:
        home: The peer's module that defines it.
        name: Its name there.
        ours: What to find there instead.

    Raises:
        ImportError: See ``load``.
    """
    original = getattr(load(home), name)
    package = home.partition(".")[0] + "."
    for path, module in list(sys.modules.items()):
        if path.startswith(package) and vars(module).get(name) is original:
            setattr(module, name, ours)


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
        source = _FROM_GIT.get(peer)
        way = f"pip install {peer}" if source is None else f"it runs from a clone of {source}"
        raise NotInstalledError(
            f"{home} is needed, and {peer} is not installed: {way}", name=peer
        ) from error
