"""The lint runs what it says: each check has a command, and circles of imports are found."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = ROOT / ".ci/lint"
LINTER = ROOT / ".venv-lint/bin/lint-imports"


def test_each_check_has_a_command() -> None:
    checks = re.findall(r"^(?:.*then )?check ([\w-]+)(.*)$", LINT.read_text(), re.MULTILINE)
    assert len(checks) > 20
    assert [name for name, command in checks if not command.strip()] == []


def test_a_check_without_a_command_fails() -> None:
    check = re.search(r"^check\(\) \{.*?^\}$", LINT.read_text(), re.MULTILINE | re.DOTALL)
    assert check is not None
    script = f"failures=0\n{check[0]}\ncheck nothing\ncheck something true\nexit $failures"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert re.findall(r"lint: (\w+) +(\w+)", done.stdout) == [
        ("FAILED", "nothing"),
        ("ok", "something"),
    ]


@pytest.mark.skipif(not LINTER.exists(), reason="needs .ci/setup lint")
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 0),
        # Circles of modules, of folders, and of imports for types alone.
        ("from counterweight_rl.local import engine", 1),
        ("from counterweight_rl.transport import channel", 1),
        ("if TYPE_CHECKING:\n    from counterweight_rl.local import engine", 1),
    ],
)
def test_circles_of_imports_are_found(tmp_path: Path, text: str, status: int) -> None:
    shutil.copytree(ROOT / "client/python/counterweight_rl", tmp_path / "counterweight_rl")
    library = tmp_path / "counterweight_rl/local/library.py"
    library.write_text(library.read_text() + f"\n{text}\n")
    done = subprocess.run(
        [LINTER, "--no-cache", ROOT / "client/python/pyproject.toml"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stdout
