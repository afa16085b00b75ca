""".ci/check_imports finds circles and imports upwards, and none in the Python client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[2] / ".ci/check_imports"


def check(*arguments: Path) -> tuple[int, str]:
    command = [sys.executable, CHECK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("from client.arrays import batch", "imports: clean"),
        ("import client.arrays.batch", "imports: clean"),
        ("from client.cli import batch", "local/ is below cli/"),
        ("from client.local.user import run", "a circle: client.local"),
        ("if TYPE_CHECKING:\n    from client.local import user", "a circle: client.local"),
    ],
)
def test_imports_are_checked(tmp_path: Path, text: str, problem: str) -> None:
    sources = {"arrays/batch.py": "", "cli/batch.py": "", "local/engine.py": text}
    sources["local/user.py"] = "from client.local import engine"
    for name, source in sources.items():
        path = tmp_path / "client" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    status, found = check(tmp_path / "client")
    assert problem in found
    assert status == (problem != "imports: clean")


def test_the_clients_imports_are_clean() -> None:
    assert check() == (0, "imports: clean\n")
