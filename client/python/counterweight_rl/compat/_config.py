"""Reads the originals' configuration objects of any type."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any


def to_block(config: Any, known: Collection[str] | None = None) -> dict[str, Any]:
    """Returns a mapping, OmegaConf node, dataclass or plain object as a block for ``Dialect``.

    Args:
        config: The object.
        known: Fields of the dialect. Other fields are left out if they are None: a peer's next
            version has more fields, and an unset one changes nothing. None: takes all fields.

    Raises:
        TypeError: The object has another type.
    """
    block = {}
    for name, value in _items(config).items():
        # Hydra owns the private fields of verl's dataclasses.
        if str(name).startswith("_"):
            continue
        if value is None and known is not None and name not in known:
            continue
        block[name] = _plain(value)
    return block


def get(config: Any, name: str, default: Any = None) -> Any:
    """Returns a field of such an object; ``default`` if it is absent."""
    if isinstance(config, Mapping):
        return config.get(name, default)
    return getattr(config, name, default)


def given(config: Any, names: Iterable[str]) -> dict[str, Any]:
    """Returns the present fields: None differs from an absent field."""
    absent = object()
    values = {name: get(config, name, absent) for name in names}
    return {name: value for name, value in values.items() if value is not absent}


def _items(config: Any) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return config
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    if not hasattr(config, "__dict__"):
        raise TypeError(f"cannot read a configuration out of a {type(config).__name__}")
    attributes: dict[str, Any] = vars(config)
    return attributes


def _plain(value: Any) -> Any:
    if isinstance(value, (str, bool, int, float, type(None))):
        return value
    if hasattr(value, "item"):  # a count may be a tensor or a numpy scalar
        return value.item()
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return to_block(value)
