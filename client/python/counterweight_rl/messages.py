"""Conversions between the public dataclasses and the messages with the same fields.

A message is a dict here, as protobuf's JSON form has it
(https://protobuf.dev/programming-guides/json), which the library and the package protobuf both
read and write. Requests have the proto's names of fields, answers those in camel case. The
dataclasses' annotations say what a field is, so nothing needs the package.
"""

from __future__ import annotations

import base64
import functools
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Union, get_args, get_origin, get_type_hints

from counterweight_rl import calm_bound, config, dialect_blocks
from counterweight_rl.arguments import (
    INT32,
    INT64,
    UINT32,
    boolean,
    integer,
    items,
    number,
    text,
)
from counterweight_rl.choices import Choice
from counterweight_rl.dialect_structs import to_block
from counterweight_rl.suggestions import did_you_mean

Message = dict[str, Any]

_SCALARS: dict[Any, Callable[[str, Any], Any]] = {
    bool: boolean,
    float: number,
    int: integer,
    str: text,
}
# The integers of methods and baselines are of 64 bits, but these.
_SHORT = {"after_rule": UINT32, "fewest_voters": INT32}


def method_to_message(method: config.Method) -> Message:
    """Converts the argument ``method``.

    Raises:
        TypeError: It, or a value inside, has a type that the wire cannot carry.
        ValueError: An unknown choice.
    """
    if isinstance(method, str):
        return {"preset": {"name": text("method", method)}}
    if isinstance(method, config.Preset):
        preset: Message = {"name": text("method.name", method.name), "parameters": {}}
        for name, value in method.parameters.items():
            path = f"method.parameters[{text('method.parameters', name)}]"
            until: object = value
            if calm_bound.is_calm(value):
                quantile, until = calm_bound.read(path, str(value))
                preset.setdefault("calm_quantiles", {})[name] = quantile
                if until is None:
                    continue
            preset["parameters"][name] = number(path, until)
        losses = _fields("method", method, config.Preset, ("policy_loss", "kl_penalty"))
        return {"preset": {**preset, **losses}}
    if isinstance(method, config.CorrectionConfig):
        return {"config": to_message("method", method, config.CorrectionConfig)}
    if isinstance(method, config.Dialect):
        names = ("system", "ignore_unknown_fields", "release")
        dialect = _fields("method", method, config.Dialect, names)
        block = dialect_blocks.to_mapping(method.system, method.block)
        return {"dialect": {**dialect, "block": to_block("method.block", block)}}
    raise TypeError(
        "method must be a preset's name, Preset, CorrectionConfig or Dialect, "
        f"not {type(method).__name__}"
    )


def choice_name(path: str, value: object, cls: type[Choice]) -> str:
    """Returns the contract's name of a choice, an enum's member or its text."""
    # str() of another package's enum of strings is not its text.
    name = str.__str__(value) if isinstance(value, str) else str(value)
    if name.upper() not in cls.__members__:
        known = [choice.value for choice in cls]
        advice = did_you_mean(value, known)
        raise ValueError(f"{path} must be one of {', '.join(known)}; got {value!r}{advice}")
    return _prefix(cls) + name.upper()


def to_message(path: str, source: Any, cls: type[Any]) -> Message:
    """Returns the message of a dataclass; None leaves a field absent.

    Raises:
        TypeError: It, or a value inside, has a wrong type.
        ValueError: An unknown choice, or a number that the field cannot hold.
    """
    if not isinstance(source, cls):
        raise TypeError(f"{path} must be a {cls.__name__}, not {type(source).__name__}")
    if isinstance(source, config.ImportanceWeight) and calm_bound.is_calm(source.upper):
        quantile, until = calm_bound.read(f"{path}.upper", str(source.upper))
        source = replace(source, upper=until, upper_calm_quantile=quantile)
    return _fields(path, source, cls, [each.name for each in fields(cls)])


def from_message(kind: Any, value: Any) -> Any:
    """Returns what a message, or a field of one, is as ``kind``, a dataclass or another type.

    Absent fields become None where the type has it, and so do messages and choices; else 0 or
    empty. A choice that only a newer server knows becomes the text of its number.
    """
    return _reader(kind)(value)


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """The part of ``from_message`` that a kind decides, once."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        given = _reader(args[0])
        return lambda value: None if value is None else given(value)
    if origin is not None and issubclass(origin, Mapping):
        each = _reader(args[1])
        return lambda value: {key: each(item) for key, item in (value or {}).items()}
    if origin is not None:
        each = _reader(args[0])
        return lambda value: tuple(map(each, value or ()))
    if _has_fields(kind):
        return _fields_reader(kind)
    if issubclass(kind, Choice):
        return lambda value: None if value is None else _choice(kind, value)
    if kind is bytes:
        return lambda value: base64.b64decode(value or "")
    # 64 bits are text, and so are NaN and the infinities.
    return lambda value: kind() if value is None else kind(value)


def _fields_reader(kind: Any) -> Callable[[Any], Any]:
    hints = _hints(kind)
    names = [(each.name, _camel(each.name), _reader(hints[each.name])) for each in fields(kind)]

    def read(value: Any) -> Any:
        if value is None:
            return None
        return kind(**{name: of(value.get(camel)) for name, camel, of in names})

    return read


def _choice(kind: type[Choice], value: str | int) -> Any:
    if isinstance(value, int):
        return str(value)
    return kind(value.removeprefix(_prefix(kind)).lower())


def field(cls: Any, name: str, message: Message) -> Any:
    """Returns what ``cls`` has in its field ``name``."""
    return from_message(_hints(cls)[name], message.get(_camel(name)))


def _fields(path: str, source: Any, cls: Any, names: Iterable[str]) -> Message:
    hints = _hints(cls)
    values = ((name, getattr(source, name)) for name in names)
    return {n: _value(f"{path}.{n}", hints[n], v) for n, v in values if v is not None}


def _value(path: str, kind: Any, value: Any) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _value(path, args[0], value)
    if origin is not None:
        (cls,) = args
        listed = items(path, value, f"a sequence of {cls.__name__}")
        return [to_message(f"{path}[{i}]", item, cls) for i, item in enumerate(listed)]
    if _has_fields(kind):
        return to_message(path, value, kind)
    if issubclass(kind, Choice):
        return choice_name(path, value, kind)
    if kind is int:
        return integer(path, value, _SHORT.get(path.rpartition(".")[2], INT64))
    return _SCALARS[kind](path, value)


def _has_fields(kind: Any) -> bool:
    return is_dataclass(kind)


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


@functools.cache
def _prefix(cls: type[Choice]) -> str:
    """Returns what precedes the names of an enum's values: RATIO_SOURCE_."""
    name = cls.__name__
    return "".join("_" + c if c.isupper() else c for c in name).lstrip("_").upper() + "_"


@functools.cache
def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)
