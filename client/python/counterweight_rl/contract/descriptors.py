"""Descriptions of the contract's enums and messages, with protobuf's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from counterweight_rl._gen.tables import ENUMS, MESSAGES


@dataclass(frozen=True)
class EnumValue:
    """A value of an enum."""

    name: str
    number: int


class Enum:
    """An enum, and the wrapper that protobuf's modules have for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values = [EnumValue(*item) for item in ENUMS[name].items()]
        self.values_by_name = {value.name: value for value in self.values}
        self.values_by_number = {value.number: value for value in self.values}
        self.DESCRIPTOR = self

    def keys(self) -> list[str]:
        """The values' names."""
        return list(self.values_by_name)

    def Name(self, number: int) -> str:  # noqa: N802 (protobuf's name)
        """Returns the name of a number; ValueError if there is none."""
        if number not in self.values_by_number:
            raise ValueError(f"{self.name} has no value {number}")
        return self.values_by_number[number].name

    def Value(self, name: str) -> int:  # noqa: N802 (protobuf's name)
        """Returns the number of a name; ValueError if there is none."""
        if name not in self.values_by_name:
            raise ValueError(f"{self.name} has no value {name!r}")
        return self.values_by_name[name].number


class Field:
    """A field of a message.

    Attributes:
        type: A scalar's; "enum" or "message".
        enum_type: The enum; None for other types.
        oneof: The name of the field's oneof; None if it is in none.
        is_repeated: True for lists, not for maps.
        is_map: True for maps, whose keys are strings.
        has_presence: Whether an absent value differs from a default one.
    """

    def __init__(self, name: str, number: int, type_name: str, kind: str) -> None:
        self.name, self.number = name, number
        self.enum_type = ENUM_TYPES.get(type_name)
        self._message_name = type_name if type_name in MESSAGES else None
        self.type = "enum" if self.enum_type else "message" if self._message_name else type_name
        self.oneof = kind.removeprefix("oneof:") if kind.startswith("oneof:") else None
        self.is_repeated, self.is_map = kind == "repeated", kind == "map"
        self.has_presence = kind == "explicit" or self.oneof is not None

    @cached_property
    def message_type(self) -> Descriptor | None:
        """The description of the message; None for other types."""
        return DESCRIPTORS[self._message_name] if self._message_name else None


class Descriptor:
    """A message.

    Attributes:
        fields: The fields in the order of their numbers.
    """

    def __init__(self, name: str, fields: Mapping[str, tuple[int, str, str]]) -> None:
        self.name = name
        self.fields = sorted((Field(key, *row) for key, row in fields.items()), key=_number)
        self.fields_by_name = {field.name: field for field in self.fields}
        self.fields_by_number = {field.number: field for field in self.fields}


def _number(field: Field) -> int:
    return field.number


ENUM_TYPES = {name: Enum(name) for name in ENUMS}
"""The enums by name."""
DESCRIPTORS = {name: Descriptor(name, fields) for name, fields in MESSAGES.items()}
"""The messages by name."""
