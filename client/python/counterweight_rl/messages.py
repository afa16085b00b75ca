"""Conversions between the public dataclasses and the proto messages with the same fields."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from counterweight_rl import choices, config, dialect_blocks, info, result
from counterweight_rl.arguments import INT64, UINT32, boolean, integer, items, number, text
from counterweight_rl.contract import Message, method_pb2
from counterweight_rl.contract.descriptors import DESCRIPTORS
from counterweight_rl.dialect_structs import fill_struct
from counterweight_rl.suggestions import did_you_mean

T = TypeVar("T")

_SCALARS: dict[str, Callable[[str, Any], Any]] = {
    "bool": boolean,
    "double": number,
    "int64": functools.partial(integer, limits=INT64),
    "string": text,
    "uint32": functools.partial(integer, limits=UINT32),
}
# Dataclasses and enums by the name of their proto counterpart.
_DATACLASSES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        config.CorrectionConfig,
        config.GlobalCounts,
        config.ImportanceWeight,
        config.KlPenalty,
        config.PolicyLoss,
        config.RejectionRule,
        info.Device,
        info.DialectReleases,
        info.Limits,
        info.MethodInfo,
        info.ParameterInfo,
        info.Release,
        result.RuleSummary,
        result.StalenessBucket,
        result.Timing,
    )
}
_DATACLASSES["GetServerInfoResponse"] = info.ServerInfo
_DATACLASSES["StalenessSummary"] = result.Staleness
_ENUMS: dict[str, type[choices.Choice]] = {
    cls.__name__: cls
    for cls in (
        choices.Aggregation,
        choices.Bound,
        choices.Estimator,
        choices.KlEstimator,
        choices.Level,
        choices.LossAggregation,
        choices.LossDenominator,
        choices.NonFinitePolicy,
        choices.RatioSource,
        choices.RuleCondition,
        choices.RuleEffect,
        choices.RuleEvaluation,
        choices.SelectionScope,
        choices.Surrogate,
    )
}


def method_to_proto(method: config.Method) -> method_pb2.Method:
    """Converts the argument ``method``.

    Raises:
        TypeError: It, or a value inside, has a type that the wire cannot carry.
        ValueError: An unknown choice.
    """
    message = method_pb2.Method()
    if isinstance(method, str):
        message.preset.name = text("method", method)
    elif isinstance(method, config.Preset):
        message.preset.name = text("method.name", method.name)
        for name, value in method.parameters.items():
            path = f"method.parameters[{text('method.parameters', name)}]"
            message.preset.parameters[name] = number(path, value)
        for name in ("policy_loss", "kl_penalty"):
            _fill_field("method", name, getattr(method, name), message.preset)
    elif isinstance(method, config.CorrectionConfig):
        message.config.SetInParent()
        _fill("method", method, message.config)
    elif isinstance(method, config.Dialect):
        for name in ("system", "ignore_unknown_fields", "release"):
            _fill_field("method", name, getattr(method, name), message.dialect)
        message.dialect.block.SetInParent()
        block = dialect_blocks.to_mapping(method.system, method.block)
        fill_struct("method.block", block, message.dialect.block)
    else:
        raise TypeError(
            "method must be a preset's name, Preset, CorrectionConfig or Dialect, "
            f"not {type(method).__name__}"
        )
    return message


def enum_to_proto(path: str, value: str, descriptor: Any) -> Any:
    """Returns the number of the choice ``value``, an enum's member or its text."""
    prefix = _prefix(descriptor)
    # str() of another package's enum of strings is not its text.
    name = str.__str__(value) if isinstance(value, str) else str(value)
    found = descriptor.values_by_name.get(prefix + name.upper())
    if found is None or found.number == 0:
        choices = [v.name[len(prefix) :].lower() for v in descriptor.values[1:]]
        advice = did_you_mean(value, choices)
        raise ValueError(f"{path} must be one of {', '.join(choices)}; got {value!r}{advice}")
    return found.number


def to_proto(path: str, source: Any, message: Message) -> None:
    """Fills ``message`` from its dataclass; None leaves a field absent.

    Raises:
        TypeError: It, or a value inside, has a wrong type.
        ValueError: An unknown choice, or a number that the field cannot hold.
    """
    _fill(path, _checked(path, source, _DATACLASSES[message.DESCRIPTOR.name]), message)


def from_proto(message: Message, cls: type[T]) -> T:
    """Returns the dataclass of ``message``; absent fields become None."""
    return cls(**{f.name: _value(message, f.name) for f in fields(cls)})  # type: ignore[arg-type]


def _value(message: Message, name: str) -> Any:
    descriptor = message.DESCRIPTOR.fields_by_name[name]
    value = getattr(message, name)
    if descriptor.has_presence and not message.HasField(name):
        return None
    if descriptor.enum_type is not None:
        return _choice(descriptor.enum_type, value)
    if isinstance(value, Message):
        return from_proto(value, _DATACLASSES[value.DESCRIPTOR.name])
    if isinstance(value, (str, bytes, int, float)):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    return tuple(
        from_proto(v, _DATACLASSES[v.DESCRIPTOR.name]) if isinstance(v, Message) else v
        for v in value
    )


def _choice(descriptor: Any, number: int) -> choices.Choice | str | None:
    """Returns None for UNSPECIFIED, and the text of a choice that only a newer server knows."""
    if number == 0:
        return None
    if number not in descriptor.values_by_number:
        return str(number)
    text = descriptor.values_by_number[number].name[len(_prefix(descriptor)) :].lower()
    return _ENUMS[descriptor.name](text)


def _prefix(descriptor: Any) -> str:
    return str(descriptor.values[0].name.removesuffix("UNSPECIFIED"))


def _fill(path: str, source: Any, message: Message) -> None:
    for f in fields(source):
        _fill_field(path, f.name, getattr(source, f.name), message)


def _fill_field(parent: str, name: str, value: Any, message: Message) -> None:
    path = f"{parent}.{name}"
    descriptor = message.DESCRIPTOR.fields_by_name[name]
    if value is None:
        return
    if descriptor.enum_type is not None:
        setattr(message, name, enum_to_proto(path, value, descriptor.enum_type))
    elif descriptor.message_type is not None:
        cls = _DATACLASSES[descriptor.message_type.name]
        target = getattr(message, name)
        if isinstance(target, Message):
            target.SetInParent()
            _fill(path, _checked(path, value, cls), target)
        else:
            for i, item in enumerate(items(path, value, f"a sequence of {cls.__name__}")):
                item_path = f"{path}[{i}]"
                _fill(item_path, _checked(item_path, item, cls), target.add())
    else:
        # Not protobuf's descriptor: errors are the same without protobuf.
        field = DESCRIPTORS[message.DESCRIPTOR.name].fields_by_name[name]
        setattr(message, name, _SCALARS[field.type](path, value))


def _checked(path: str, value: Any, cls: type[Any]) -> Any:
    if not isinstance(value, cls):
        raise TypeError(f"{path} must be a {cls.__name__}, not {type(value).__name__}")
    return value
