"""The Python blocks of the pages pass `mypy --strict`, as a reader's program with them would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "client/python/README.md")


def test_the_blocks_of_pages_are_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for index, page in enumerate(PAGES):
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
        assert len(blocks) >= 4
        (tmp_path / f"page_{index}.py").write_text("\n".join(blocks))
    (tmp_path / "wrong.py").write_text("import counterweight_rl as cw\ncw.Preset(3)\n")
    settings = ["--config-file", ROOT / "client/python/pyproject.toml", "--strict"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *settings, "--cache-dir", "cache", *tmp_path.glob("*.py")],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT / "client/python")},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, done.stdout + done.stderr
    assert errors[0].startswith('wrong.py:2: error: Argument 1 to "Preset"')
