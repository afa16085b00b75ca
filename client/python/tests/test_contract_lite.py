"""The messages for processes without protobuf, compared with protobuf's."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf import struct_pb2
from google.protobuf.message import Message

from counterweight_rl._gen.counterweight.v1 import (
    correction_service_pb2,
    method_pb2,
    tensor_pb2,
)
from counterweight_rl.contract import lite

MODULES = (tensor_pb2, method_pb2, correction_service_pb2, struct_pb2)
MESSAGES = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, Message)
}
INTEGERS = {"INT32": 31, "UINT32": 32, "INT64": 63, "UINT64": 64}
DEPTH = 4


def scalar(field: Any, source: random.Random) -> Any:
    kind = next(
        n for n in vars(type(field)) if n.startswith("TYPE_") and field.type == getattr(field, n)
    )
    kind = kind.removeprefix("TYPE_")
    if kind in INTEGERS:
        largest = (1 << INTEGERS[kind]) - 1
        least = -largest - 1 if kind.startswith("INT") else 0
        return source.choice([0, 1, 300, least, largest, source.randint(least, largest)])
    if kind == "ENUM":
        return source.choice(list(field.enum_type.values_by_number))
    if kind in ("DOUBLE", "FLOAT"):
        return source.choice([0.0, -0.0, 1.5, -(2.0**-20), float("inf")])
    if kind == "BOOL":
        return source.random() < 0.5
    text = source.choice(["", "a", "wörter", "x" * 200])
    return text.encode() if kind == "BYTES" else text


def fill(message: Any, twin: Any, source: random.Random, depth: int = 0) -> None:
    """Gives random fields of two messages the same values, by the same calls."""
    for field in message.DESCRIPTOR.fields:
        if source.random() < 0.4:
            continue
        name, of = field.name, field.message_type
        one, two = (getattr(each, name) for each in (message, twin))
        if of is not None and of.GetOptions().map_entry:
            value = of.fields_by_name["value"]
            for key in source.sample(["", "b", "c"], 2):
                if value.message_type is None:
                    one[key] = two[key] = scalar(value, source)
                elif depth < DEPTH:
                    fill(one[key], two[key], source, depth + 1)
        elif field.is_repeated if hasattr(field, "is_repeated") else field.label == 3:
            for _ in range(source.randrange(3)):
                if of is None:
                    item = scalar(field, source)
                    one.append(item)
                    two.append(item)
                elif depth < DEPTH:
                    fill(one.add(), two.add(), source, depth + 1)
        elif of is None:
            value = scalar(field, source)
            setattr(message, name, value)
            setattr(twin, name, value)
        elif depth < DEPTH and (field.containing_oneof is None or not has_any(message, field)):
            one.SetInParent()
            two.SetInParent()
            fill(one, two, source, depth + 1)


def has_any(message: Any, field: Any) -> bool:
    return message.WhichOneof(field.containing_oneof.name) is not None


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_the_same_bytes_both_ways(name: str) -> None:
    known = MESSAGES[name]
    source = random.Random(name)
    for _ in range(60):
        expected, message = known(), lite.CLASSES[name]()
        fill(expected, message, source)
        data = expected.SerializeToString(deterministic=True)
        # Maps have no order, so protobuf compares.
        assert known.FromString(message.SerializeToString()) == expected
        read = lite.CLASSES[name].FromString(data)
        assert known.FromString(read.SerializeToString()) == expected
        for field in known.DESCRIPTOR.fields:
            if field.has_presence:
                assert message.HasField(field.name) == expected.HasField(field.name)
                assert read.HasField(field.name) == expected.HasField(field.name)


def test_unknown_fields_are_skipped() -> None:
    unknown = b"\xf8\x07\x05" + b"\xfa\x07\x02hi" + b"\xf9\x07" + bytes(8) + b"\xfd\x07" + bytes(4)
    assert lite.namespace.Labels.FromString(unknown + b"\x0a\x01x" + unknown).run == "x"


@pytest.mark.parametrize("data", [b"\x0a\x05x", b"\x0a", b"\x0b", b"\xff" * 11, b"\x0a\x01\xff"])
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(lite.DecodeError, match="Labels"):
        lite.namespace.Labels.FromString(data)


def test_unpacked_numbers() -> None:
    read = lite.namespace.PackedLayout.FromString(b"\x08\x05\x08\x07\x0a\x02\x01\x02")
    assert read.sequence_lengths == [5, 7, 1, 2]


def test_wrong_values_are_protobufs_errors() -> None:
    for messages in (lite.namespace, correction_service_pb2):
        request = messages.CorrectRequest()
        for name, value, error in (
            ("seed", 1.5, TypeError),
            ("seed", -1, ValueError),
            ("seed", 1 << 64, ValueError),
            ("request_id", 5, TypeError),
            ("non_finite_policy", "NO_SUCH", ValueError),
            ("layout", None, AttributeError),
            ("no_such", 1, AttributeError),
        ):
            with pytest.raises(error):
                setattr(request, name, value)
        with pytest.raises(TypeError):
            request.group_ids.extend(["a"])


def test_a_oneof_holds_its_last_member() -> None:
    value = lite.namespace.Value()
    value.number_value = 2.0
    value.string_value = "x"
    assert value.WhichOneof("kind") == "string_value"
    read = lite.namespace.Value.FromString(b"\x20\x01" + value.SerializeToString())
    assert (read.WhichOneof("kind"), read.bool_value) == ("string_value", False)
