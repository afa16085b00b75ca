"""Stand-ins for packages that the peers import and that no compared function calls.

A peer's module imports ray, deepspeed or vllm at its head, for workers and engines. The functions
compared here are arithmetic on tensors, so an empty package of that name is enough.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any


class _Forgiving(type):
    """A class that has any attribute, item and union."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__


class StandIn(metaclass=_Forgiving):
    """The value of every name of such a package: a base class, a decorator, a function, a
    constant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # A decorator with arguments is called a second time, with the decorated object.
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def __bool__(self) -> bool:
        # Answers no to questions such as is_initialized().
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, packages: Iterable[str]) -> None:
        self.packages = frozenset(packages)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.packages and fullname.partition(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__version__ = "0"  # type: ignore[attr-defined]


def install(*packages: str) -> None:
    """Lets ``import package`` and its submodules succeed where the package is not installed."""
    # At the end of the path: an installed package is imported itself.
    sys.meta_path.append(_Finder(packages))


def replace(*modules: str) -> None:
    """Puts stand-ins in the place of a peer's own modules, which need more than they give."""
    sys.meta_path.insert(0, _Finder(modules))


def skip_init(package: str, folder: str) -> None:
    """Makes a package of a folder's modules without running its ``__init__``.

    Some peers' packages import models, engines and trainers, which the compared modules do not use.
    """
    module = types.ModuleType(package)
    module.__path__ = [folder]
    sys.modules[package] = module
    parent, _, name = package.rpartition(".")
    if parent:
        setattr(importlib.import_module(parent), name, module)
