"""Prints counterweight_rl/choices.py: the enums of the contract as Python enums, documented by their comments there."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

# The client's own order and selection: what methods and requests are made of.
CHOICES = [
    "RatioSource",
    "Level",
    "Bound",
    "Estimator",
    "Aggregation",
    "RuleEvaluation",
    "RuleCondition",
    "RuleEffect",
    "Surrogate",
    "LossAggregation",
    "LossDenominator",
    "KlEstimator",
    "NonFinitePolicy",
]
ENUM_FIELD = 5  # FileDescriptorProto.enum_type
VALUE_FIELD = 2  # EnumDescriptorProto.value

HEAD = '''"""The choices that methods and requests are made of: the enums of proto/counterweight/v1.

Made by `make proto`. Edits here are lost.
"""

from __future__ import annotations

from enum import Enum


class Choice(str, Enum):
    """A choice that equals its lower-case name."""

    def __str__(self) -> str:
        return str(self.value)
'''


def docstring(comment: str, indent: str) -> str:
    words = " ".join(comment.split()).replace("\\", "\\\\")
    width = 100 - len(indent)
    if len(words) + 6 <= width:
        return f'{indent}"""{words}"""\n'
    lines = textwrap.wrap('"""' + words, width, break_long_words=False)
    if len(lines[-1]) + 3 > width:
        lines.append("")
    lines[-1] += '"""'
    return "".join(f"{indent}{line}\n" for line in lines)


def snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


def find(
    files: FileDescriptorSet, name: str
) -> tuple[FileDescriptorProto, int, EnumDescriptorProto]:
    for file in files.file:
        for index, enum in enumerate(file.enum_type):
            if enum.name == name:
                return file, index, enum
    raise SystemExit(f"choices: the contract has no enum {name}")


def main() -> None:
    files = FileDescriptorSet.FromString(Path(sys.argv[1]).read_bytes())
    text = HEAD
    for name in CHOICES:
        file, index, enum = find(files, name)
        comments = {tuple(at.path): at.leading_comments for at in file.source_code_info.location}
        text += f"\n\nclass {name}(Choice):\n" + docstring(comments[ENUM_FIELD, index], "    ")
        prefix = snake(name).upper() + "_"
        text += "\n"
        for number, value in enumerate(enum.value):
            if value.number == 0:
                continue
            choice = value.name.removeprefix(prefix)
            text += f'    {choice} = "{choice.lower()}"\n'
            text += docstring(comments[ENUM_FIELD, index, VALUE_FIELD, number], "    ")
    print(text, end="")


main()
