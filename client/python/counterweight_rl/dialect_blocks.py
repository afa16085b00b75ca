"""Converts configurations to blocks of a ``Dialect``.

A mapping (a dict, a node of a YAML file) is sent whole, so that the server can refuse a misspelt
field. A trainer's configuration object has many unrelated fields, tokens and passwords among them,
so only the dialect's fields are read.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from numbers import Real
from typing import Any

from counterweight_rl.dialect_fields import FIELDS, OTHERS

# Nodes of verl's and AReaL's own trees; the other nodes are not sent.
_TREE = ("algorithm", "actor_rollout_ref", "actor")
# Structs in which the server reads only the fields of FIELDS.
_PARTS = (*_TREE, "actor_train")

_ABSENT = object()


def to_mapping(system: str, config: Any) -> Mapping[str, Any]:
    """Returns the block of ``config``.

    Args:
        system: The dialect.
        config: A mapping, or a configuration object: anything with attributes, such as a dataclass
            or a pydantic model, or with ``to_dict()``. OmegaConf's nodes are mappings, except those
            with a class behind them (structured configs, and nodes with a ``_target_``), which are
            objects.

    Returns:
        All fields of a mapping but those that the system's own configuration has and its dialect
        does not read; those fields of an object that the dialect knows. The same holds for structs
        in it.

    Raises:
        TypeError: ``config`` is neither, or an object without any field of the dialect.
    """
    fields = FIELDS.get(system, {})
    is_tree = isinstance(config, Mapping) and any(
        node in config for node in _TREE if node in fields
    )
    others = OTHERS.get(system, frozenset())
    whole = _is_written(config) and not is_tree
    return _struct("method.block", config, fields, whole=whole, others=others)


def _is_written(config: Any) -> bool:
    if not isinstance(config, Mapping):
        return False
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is None or not isinstance(config, omegaconf.DictConfig):
        return True
    return omegaconf.OmegaConf.get_type(config) is dict and "_target_" not in config


def _struct(
    path: str,
    config: Any,
    fields: Mapping[str, Any],
    *,
    whole: bool,
    others: Collection[str] = (),
) -> dict[str, Any]:
    """Returns all fields of a mapping but ``others`` if ``whole``, else those of ``fields``."""
    block = {}
    for name in config if whole else fields:
        if name in others:
            continue
        value = config[name] if whole else _read(config, name)
        inner = fields.get(name)
        if isinstance(inner, list):
            if whole or (value is not _ABSENT and _is_value(value)):
                block[name] = _structs(f"{path}.{name}", value, inner[0])
        elif inner is not None and not _is_value(value):
            # AReaL's actor has a table of its other fields.
            is_checked = name not in _PARTS or (bool(others) and name == "actor")
            block[name] = _struct(
                f"{path}.{name}",
                value,
                inner,
                whole=_is_written(value) and is_checked,
                others=others if name == "actor" else (),
            )
        elif whole or (value is not _ABSENT and _is_value(value)):
            block[name] = value
    if not block and hasattr(config, "to_dict") and not isinstance(config, type):
        block = _struct(path, dict(config.to_dict()), fields, whole=False)
    is_part = path.rpartition(".")[2] in _PARTS
    if not block and not isinstance(config, Mapping) and not is_part:
        raise TypeError(
            f"{path} must be a mapping, not {type(config).__name__}, or an object with fields that "
            "the dialect knows"
        )
    return block


def _structs(path: str, value: Any, fields: Mapping[str, Any]) -> Any:
    """Returns a list with its structs as mappings; what is no list is for the server to refuse."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return value
    return [
        one if _is_value(one) else _struct(f"{path}[{index}]", one, fields, whole=_is_written(one))
        for index, one in enumerate(value)
    ]


def _read(config: Any, name: str) -> Any:
    if isinstance(config, Mapping):
        return config.get(name, _ABSENT)
    # A class has defaults but is not a configuration.
    value: Any = _ABSENT if isinstance(config, type) else getattr(config, name, _ABSENT)
    # A count may be a tensor, and boundaries an array.
    return value.tolist() if hasattr(value, "ndim") and hasattr(value, "tolist") else value


def _is_value(value: Any) -> bool:
    """False for a struct of any type."""
    is_list = isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray))
    return value is None or value is _ABSENT or is_list or isinstance(value, (Real, Enum))
