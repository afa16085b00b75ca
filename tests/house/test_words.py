""".ci/words refuses the listed words and openings, and no others."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

WORDS = Path(__file__).resolve().parents[2] / ".ci/words"


def lines(folder: Path, name: str, text: str) -> list[str]:
    """The numbers of the lines that are refused in a file of that name."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    done = subprocess.run([WORDS, path], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == (1 if done.stdout else 0)
    return re.findall(rf"^{path}:(\d*)", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "text", "refused"),
    [
        ("a.cc", "int a;  // for anybody\n", ["1"]),
        ("a.cc", "// It waits\n// for ever, with whoever comes.\n", ["2"]),
        ("a.cc", "// What comes first.\nint a;\n// Of the batch.\nint b;\n", ["1", "3"]),
        ("a.h", "struct A {\n  int b;  // What it is.\n};\n", ["2"]),
        ("a.proto", "// What to compute.\nmessage A {}\n", ["1"]),
        ("a.go", "// Of a chunk.\nvar a int\n", ["1"]),
        ("a.py", '"""What it is."""\n\nA = 1  # nobody\n', ["3", "1"]),
        ("a.py", 'A = 1\n"""Of the batch, in\n\nwhich somebody waits."""\n', ["4", "2"]),
        ("CMakeLists.txt", "# Somebody reads it.\n", ["1"]),
        (".ci/a", "#!/usr/bin/env bash\n# What it does.\n", ["2"]),
        ("a.md", "One.\n\nIt is nowhere.\n", ["3"]),
        ("a.py", 'parser.add_argument("--a", help="The most of them")\n', ["1"]),
        # The place within a text of several lines is not numbered.
        ("bench/settings.cc", 'Add("--a",\n    "Their bytes "\n    "here");\n', [""]),
        ("observe/a_table.h", '{"name_total",\n "The same by token."}\n', [""]),
    ],
)
def test_words_are_refused(tmp_path: Path, name: str, text: str, refused: list[str]) -> None:
    assert lines(tmp_path, name, text) == refused


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.cc", '// The caller waits for\n// what it gets.\nchar a[] = "// nobody";\n'),
        ("a.cc", "// Whatever it is, officially.\nint a;\n"),
        ("a.go", "// Of returns a copy.\nvar a int\n"),
        ("a.py", 'A = "nobody"  # the name of a user\n'),
        ("a.md", "The user `nobody`.\n\n## What it does\n"),
        ("a.json", '{"// What": "nobody"}\n'),
        ("a.py", 'parser.add_argument("--a", help="Largest number of them")\n'),
        ("flags.cc", '{"a",\n "Turned off by 0. "\n "It takes a thread."}\n'),
    ],
)
def test_other_text_is_not(tmp_path: Path, name: str, text: str) -> None:
    assert lines(tmp_path, name, text) == []
