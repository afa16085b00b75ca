""".ci/check_layers refuses includes that go up, and no others."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[2] / ".ci/check_layers"


def offenders(root: Path, includes: dict[str, str]) -> list[str]:
    """The lines that are refused in a tree of files with one include each."""
    for name in ("kernels", "server", "client", "tests", ".ci"):
        (root / name).mkdir()
    shutil.copy(CHECK, root / ".ci")
    for name, header in includes.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f'#include "{header}"\n')
    run = subprocess.run([root / ".ci/check_layers"], capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    assert run.returncode == (lines != ["layers: clean"]), run
    return [line.split(":")[0] for line in lines if "  <- " in line]


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("server/base/a.h", "server/log/b.h"),
        ("server/trace/a.cc", "server/b.h"),
        ("server/engine/a.h", "server/engine/dialects/b.h"),
        ("server/engine/a.h", "server/base/b.h"),
        ("server/call/a.h", "server/new/b.h"),
        ("server/new/a.h", "server/base/b.h"),
        ("kernels/a.h", "kernels/math/b.h"),
        ("kernels/surrogates/a.h", "kernels/walk/b.h"),
        ("client/cpp/status.h", "client/cpp/device/b.h"),
        ("client/cpp/device/a.cc", "client/cpp/client.h"),
    ],
)
def test_includes_upwards_are_refused(tmp_path: Path, name: str, header: str) -> None:
    assert offenders(tmp_path, {name: header}) == [name]


def test_includes_downwards_are_not(tmp_path: Path) -> None:
    below = {
        "server/a.cc": "server/shared_memory/b.h",
        "server/log/a.h": "server/engine/b.h",
        "server/engine/dialects/a.h": "server/engine/b.h",
        "kernels/a.cc": "kernels/walk/b.h",
        "kernels/math/a.h": "kernels/math/b.h",
        "kernels/walk/a.h": "kernels/b.h",
        "client/cpp/client.h": "client/cpp/device/b.h",
        "client/cpp/device/a.cc": "client/cpp/status.h",
    }
    assert offenders(tmp_path, below) == []
