"""Prints counterweight_rl/_gen/tables.py: the contract's enums and messages, for processes without protobuf."""

from __future__ import annotations

import pprint
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet

Type = FieldDescriptorProto.Type

HEAD = '''"""The contract's enums and messages, for processes without protobuf. Made by `make proto`."""

# Numbers of each enum's values by name.
ENUMS: dict[str, dict[str, int]] = {enums}

# The fields of each message: number, type and kind. A type is a scalar's, an enum's or a message's; a map's is that of
# its values, whose keys are strings. A kind is "implicit" or "explicit" presence, "repeated", "map", or "oneof:" and the
# oneof's name.
MESSAGES: dict[str, dict[str, tuple[int, str, str]]] = {messages}
'''


def type_of(field: FieldDescriptorProto) -> str:
    if field.type_name:
        return field.type_name.rpartition(".")[2]
    return Type.Name(field.type).removeprefix("TYPE_").lower()


def describe(message: DescriptorProto) -> dict[str, tuple[int, str, str]]:
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    if len(entries) < len(message.nested_type):
        raise SystemExit(f"contract_tables: {message.name} has a nested message")
    fields = {}
    for field in message.field:
        kind, of = "explicit" if field.type == Type.TYPE_MESSAGE else "implicit", type_of(field)
        if of in entries:
            key, value = entries[of].field
            if key.type != Type.TYPE_STRING:
                raise SystemExit(f"contract_tables: keys of {field.name} must be strings")
            kind, of = "map", type_of(value)
        elif field.label == FieldDescriptorProto.Label.LABEL_REPEATED:
            kind = "repeated"
        elif field.proto3_optional:
            kind = "explicit"
        elif field.HasField("oneof_index"):
            kind = f"oneof:{message.oneof_decl[field.oneof_index].name}"
        fields[field.name] = (field.number, of, kind)
    return fields


def main() -> None:
    files = FileDescriptorSet.FromString(Path(sys.argv[1]).read_bytes()).file
    tables = {
        "enums": {e.name: {v.name: v.number for v in e.value} for f in files for e in f.enum_type},
        "messages": {m.name: describe(m) for f in files for m in f.message_type},
    }
    printer = pprint.PrettyPrinter(width=120, sort_dicts=False)
    print(HEAD.format(**{name: printer.pformat(tables[name]) for name in tables}), end="")


main()
