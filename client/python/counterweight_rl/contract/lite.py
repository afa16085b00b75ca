"""The contract's messages without protobuf: the part of its interface that this package uses.

They read and write the same bytes. Fields that the contract lacks are skipped, not kept.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from counterweight_rl.contract.descriptors import DESCRIPTORS, ENUM_TYPES, Descriptor, Field
from counterweight_rl.contract.scalars import SCALARS, checked, is_default
from counterweight_rl.contract.wire_format import LENGTH_DELIMITED, fields, prefix, varint


class DecodeError(ValueError):
    """The bytes are not the message."""


class List(list[Any]):
    """A repeated field."""

    def __init__(self, field: Field) -> None:
        super().__init__()
        self._field = field

    def append(self, value: Any) -> None:
        """Appends a checked value."""
        super().append(_checked(self._field, value))

    def extend(self, values: Iterable[Any]) -> None:
        """Appends checked values."""
        super().extend([_checked(self._field, value) for value in values])

    def add(self) -> Message:
        """Appends and returns a new message."""
        message = _new(self._field)
        super().append(message)
        return message


class Map(dict[str, Any]):
    """A map field; reading an absent message makes it."""

    def __init__(self, field: Field) -> None:
        super().__init__()
        self._field = field

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(_key(key), _checked(self._field, value))

    def __missing__(self, key: str) -> Any:
        if self._field.type != "message":
            raise KeyError(key)
        super().__setitem__(_key(key), _new(self._field))
        return self[key]


class Message:
    """A message of the contract; see protobuf's documentation of generated code."""

    DESCRIPTOR: ClassVar[Descriptor]

    def __init__(self, **values: Any) -> None:
        self._values: dict[str, Any] = {}
        self._is_set = False
        for name, value in values.items():
            field = self.DESCRIPTOR.fields_by_name[name]
            if value is None:
                continue
            if field.is_repeated:
                getattr(self, name).extend(value)
            elif field.type == "message":
                getattr(self, name).CopyFrom(value)
            else:
                setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        field = self.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise AttributeError(f"{self.DESCRIPTOR.name} has no field {name!r}")
        if name in self._values:
            return self._values[name]
        if field.is_repeated or field.is_map or field.type == "message":
            made = List(field) if field.is_repeated else Map(field) if field.is_map else _new(field)
            self._values[name] = made
            return made
        return SCALARS[field.type].default

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        field = self.DESCRIPTOR.fields_by_name.get(name)
        if field is None or field.type == "message" or field.is_repeated or field.is_map:
            raise AttributeError(f"{self.DESCRIPTOR.name}.{name} cannot be assigned")
        self._put(field, checked(field, value))

    def _put(self, field: Field, value: Any) -> None:
        if field.oneof is not None:
            for other in self.DESCRIPTOR.fields:
                if other.oneof == field.oneof:
                    self._values.pop(other.name, None)
        self._values[field.name] = value
        self._is_set = True

    def _present(self) -> Iterator[tuple[Field, Any]]:
        """Yields the fields that are not absent."""
        for field in self.DESCRIPTOR.fields:
            value = self._values.get(field.name)
            if value is None:
                continue
            if field.is_repeated or field.is_map:
                is_present = bool(value)
            elif field.type == "message":
                is_present = value._is_set or any(True for _ in value._present())
            else:
                is_present = field.has_presence or not is_default(value)
            if is_present:
                yield field, value

    def HasField(self, name: str) -> bool:  # noqa: N802 (protobuf's name)
        """Whether a field with presence is present."""
        return any(field.name == name for field, _ in self._present())

    def WhichOneof(self, name: str) -> str | None:  # noqa: N802 (protobuf's name)
        """Returns the present field of a oneof."""
        return next((field.name for field, _ in self._present() if field.oneof == name), None)

    def SetInParent(self) -> None:  # noqa: N802 (protobuf's name)
        """Makes the message present in the one that contains it."""
        self._is_set = True

    def CopyFrom(self, other: Message) -> None:  # noqa: N802 (protobuf's name)
        """Makes the message equal to ``other``."""
        self._values = {}
        self._is_set = True
        self._merge(memoryview(other.SerializeToString()))

    def SerializeToString(self) -> bytes:  # noqa: N802 (protobuf's name)
        """Returns the message's bytes."""
        return b"".join(part for field, value in self._present() for part in _parts(field, value))

    @classmethod
    def FromString(cls, data: bytes | memoryview) -> Any:  # noqa: N802 (protobuf's name)
        """Reads a message.

        Raises:
            DecodeError: The bytes are not the message.
        """
        message = cls()
        try:
            message._merge(memoryview(data))
        except ValueError as error:
            raise DecodeError(f"{cls.DESCRIPTOR.name}: {error}") from error
        return message

    def _merge(self, data: memoryview) -> None:
        for found in fields(data):
            field = self.DESCRIPTOR.fields_by_number.get(found.tag >> 3)
            if field is None:
                continue
            payload = data[found.payload : found.end]
            is_delimited = found.tag & 7 == LENGTH_DELIMITED
            if field.is_map:
                key, value = _read_entry(field, payload)
                dict.__setitem__(getattr(self, field.name), key, value)
            elif field.type == "message":
                value = _new(field)
                if not field.is_repeated and self.HasField(field.name):
                    value = getattr(self, field.name)
                value._is_set = True
                value._merge(payload)
                if field.is_repeated:
                    list.append(getattr(self, field.name), value)
                else:
                    self._put(field, value)
            elif is_delimited and SCALARS[field.type].wire_type != LENGTH_DELIMITED:
                list.extend(getattr(self, field.name), _read_packed(field, payload))
            else:
                value = _read(field, found.value, payload)
                if field.is_repeated:
                    list.append(getattr(self, field.name), value)
                else:
                    self._put(field, value)


def _new(field: Field) -> Message:
    assert field.message_type is not None
    message: Message = CLASSES[field.message_type.name]()
    return message


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"keys must be strings, not {type(key).__name__}")
    return key


def _checked(field: Field, value: Any) -> Any:
    if field.type != "message":
        return checked(field, value)
    copy = _new(field)
    copy.CopyFrom(value)
    return copy


def _one(number: int, type_name: str, value: Any) -> list[bytes]:
    """Returns a tag and a value of it."""
    if type_name == "message":
        body = value.SerializeToString()
        return [prefix(number, len(body)), body]
    scalar = SCALARS[type_name]
    data = scalar.encode(value)
    if scalar.wire_type == LENGTH_DELIMITED:
        return [prefix(number, len(data)), data]
    return [varint(number << 3 | scalar.wire_type), data]


def _parts(field: Field, value: Any) -> list[bytes]:
    if field.is_map:
        parts = []
        for key, item in value.items():
            entry = b"".join(_one(1, "string", key) + _one(2, field.type, item))
            parts += [prefix(field.number, len(entry)), entry]
        return parts
    if not field.is_repeated:
        return _one(field.number, field.type, value)
    if field.type == "message" or SCALARS[field.type].wire_type == LENGTH_DELIMITED:
        return [part for item in value for part in _one(field.number, field.type, item)]
    data = b"".join(SCALARS[field.type].encode(item) for item in value)
    return [prefix(field.number, len(data)), data]


def _read(field: Field, value: int, payload: memoryview) -> Any:
    scalar = SCALARS[field.type]
    return scalar.decode(payload if scalar.wire_type else value)


def _read_packed(field: Field, payload: memoryview) -> list[Any]:
    scalar = SCALARS[field.type]
    # Each value becomes a field of its own again.
    tag = varint(1 << 3 | scalar.wire_type)
    values = []
    while payload:
        found = next(fields(memoryview(tag + bytes(payload[:10]))))
        values.append(_read(field, found.value, payload[: found.end - len(tag)]))
        payload = payload[found.end - len(tag) :]
    return values


def _read_entry(field: Field, entry: memoryview) -> tuple[str, Any]:
    key = ""
    value: Any = _new(field) if field.type == "message" else SCALARS[field.type].default
    for found in fields(entry):
        payload = entry[found.payload : found.end]
        if found.tag >> 3 == 1:
            key = str(payload, "utf-8")
        elif field.type == "message":
            value._merge(payload)
        else:
            value = _read(field, found.value, payload)
    return key, value


def _class(descriptor: Descriptor) -> type[Message]:
    members: dict[str, Any] = {"DESCRIPTOR": descriptor, "__module__": __name__}
    for field in descriptor.fields:
        members[f"{field.name.upper()}_FIELD_NUMBER"] = field.number
    return type(descriptor.name, (Message,), members)


CLASSES = {name: _class(descriptor) for name, descriptor in DESCRIPTORS.items()}
"""The messages' classes by name."""
namespace = types.SimpleNamespace(
    **CLASSES,
    **ENUM_TYPES,
    **{value.name: value.number for enum in ENUM_TYPES.values() for value in enum.values},
)
"""The names of the generated modules, which do not clash."""
