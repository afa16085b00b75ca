"""The targets of the Makefile are those of its help and of the pages, and scripts name what is wrong with a call."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([a-z0-9]+):", MAKEFILE, flags=re.M)
# In code only: "to make room" is no command.
COMMAND = re.compile(r"(?:^|`|&& )(?:[A-Z_0-9]+=\S+ )*make ([a-z][a-z0-9_-]*)", flags=re.M)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def pages() -> list[Path]:
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").stdout
    return [ROOT / name for name in listed.split()]


def test_help_lists_every_target() -> None:
    assert len(TARGETS) > 15
    (phony,) = re.findall(r"^\.PHONY: (.*)", MAKEFILE, flags=re.M)
    assert sorted(phony.split()) == sorted(TARGETS)
    told = re.findall(r"^([a-z0-9]+) +[A-Zd]", run("make", "help").stdout, flags=re.M)
    assert told == TARGETS


def test_pages_name_targets_that_exist() -> None:
    named = [(str(page), name) for page in pages() for name in COMMAND.findall(page.read_text())]
    assert len(named) > 20
    assert [one for one in named if one[1] not in TARGETS] == []


@pytest.mark.parametrize("target", sorted({*TARGETS} - {"help", "clean"}))
def test_a_page_tells_of_each_target(target: str) -> None:
    assert any(target in COMMAND.findall(page.read_text()) for page in pages())


@pytest.mark.parametrize("words", [[], ["relese"]])
def test_a_build_without_a_preset_names_them(words: list[str]) -> None:
    done = run(".ci/build", *words)
    assert done.returncode == 2
    assert "usage: .ci/build PRESET" in done.stderr
    assert all(f"'{word}'" in done.stderr for word in words)
    presets = re.findall(r'"configurePreset": "(\w+)"', (ROOT / "CMakePresets.json").read_text())
    assert all(preset in done.stderr for preset in presets)


def test_the_demo_builds_neither_the_library_nor_for_gpus() -> None:
    (recipe,) = re.findall(r"^demo:.*\n((?:\t.*\n)+)", MAKEFILE, flags=re.M)
    assert re.search(r"CUDA=\S.* \.ci/build release counterweight-server\n", recipe)
    assert "protobuf" not in (ROOT / ".ci/setup").read_text().split("die()")[1]
    phases = re.findall(r"step \d of 3: .*\((.*)\)'", recipe)
    assert len(phases) == 3
