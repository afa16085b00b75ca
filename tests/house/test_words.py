""".ci/words refuses the listed words and openings, and no others."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = runpy.run_path(str(ROOT / ".ci/words"), run_name="words")


def lines(name: str, text: str) -> list[int]:
    """The lines that are refused in a file of that name."""
    return [line for line, _ in WORDS["findings"](name, text)]


@pytest.mark.parametrize(
    ("name", "text", "refused"),
    [
        ("a.cc", "int a;  // for anybody\n", [1]),
        ("a.cc", "// It waits\n// for\n// ever, with whoever comes.\n", [2, 3]),
        ("a.cc", "// What comes first.\nint a;\n// Of the batch.\nint b;\n", [1, 3]),
        ("a.h", "struct A {\n  int b;  // What it is.\n};\n", [2]),
        ("a.proto", "// What to compute.\nmessage A {}\n", [1]),
        ("a.go", "// Of a chunk.\nvar a int\n", [1]),
        ("a.py", '"""What it is."""\n\nA = 1  # nobody\n', [3, 1]),
        ("a.py", 'A = 1\n"""Of the batch."""\n', [2]),
        ("CMakeLists.txt", "# Somebody reads it.\n", [1]),
        (".ci/a", "#!/usr/bin/env bash\n# What it does.\n", [2]),
        ("a.md", "One.\n\nIt is nowhere.\n", [3]),
        ("a.py", 'parser.add_argument("--a", help="The most of them")\n', [1]),
        ("client/cpp/bench/settings.cc", 'Add("--a",\n    "Their bytes "\n    "here");\n', [2]),
        ("server/observe/a_table.h", '{"name_total",\n "The same by token."}\n', [2]),
    ],
)
def test_words_are_refused(name: str, text: str, refused: list[int]) -> None:
    assert lines(name, text) == refused


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.cc", '// The caller waits.\n// What it gets is a copy.\nchar a[] = "// nobody";\n'),
        ("a.cc", "// Whatever it is, officially.\nint nobody;\n"),
        ("a.py", 'A = "nobody"  # the name of a user\n'),
        ("a.md", "The user `nobody`.\n\n```\nchown nobody file\n```\n"),
        ("a.json", '{"// What": "nobody"}\n'),
        ("a.py", 'parser.add_argument("--a", help="Largest number of them")\n'),
    ],
)
def test_other_text_is_not(name: str, text: str) -> None:
    assert lines(name, text) == []
