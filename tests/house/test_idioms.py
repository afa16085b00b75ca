""".ci/idioms counts idioms in comments, docstrings and help texts, and in no other text."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IDIOMS = runpy.run_path(str(ROOT / ".ci/idioms"), run_name="idioms")


@pytest.mark.parametrize(
    ("name", "text", "hits"),
    [
        ("a.h", "// A tensor whose bytes come late.\nint come;\n", 2),
        ("a.cc", 'f("it says so");  // told\n', 1),
        ("a.py", '"""It asks\nand takes up what it is told."""\nA = "ask"\n', 3),
        ("a.py", "A = 1  # of which\n", 1),
        ("a.go", "// A stand-in.\nfunc F() {}\n", 0),
        ("server/observe/a_table.h", 'Row("a_total",\n    "Tokens whose weight is 0.")\n', 1),
    ],
)
def test_idioms_are_counted(name: str, text: str, hits: int) -> None:
    found = [IDIOMS["IDIOMS"].findall(comment) for _, comment in IDIOMS["lines"](name, text)]
    assert sum(map(len, found)) == hits
