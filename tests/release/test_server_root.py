"""The folder that a release's server is compiled in: its lock, and the sentences of what can fail. apt is a stand-in."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = "deploy/release/server_root"
LINES = (ROOT / f"{SCRIPT}.lock").read_text().splitlines()
# Lists are read; a download leaves a file of the name that apt gives it, or is refused as apt refuses it.
APT = """#!/bin/sh
case "$*" in
  *update*) ;;
  *'download a=1.0-1'*) [ "$SERVED" ] && echo other >a_1.0-1_amd64.deb || { echo "E: Version '1.0-1' for 'a' was not found" >&2; exit 100; } ;;
esac
"""


def test_each_line_of_the_lock_is_a_package_a_version_and_a_hash() -> None:
    assert re.search(r"of \d{4}-\d\d-\d\d", LINES[0])
    assert "://" not in "".join(LINES)
    for line in LINES[1:]:
        assert re.fullmatch(r"(src:)?[a-z0-9][a-z0-9.+-]+ \S+ [0-9a-f]{64}", line)


def test_the_lock_has_libraries_without_the_known_holes() -> None:
    versions = dict(line.split()[:2] for line in LINES[1:])
    for name, least in (
        ("libgrpc++-dev", (1, 83)),
        ("libgrpc-dev", (1, 83)),
        ("libssl-dev", (3, 5)),
    ):
        assert tuple(map(int, re.findall(r"\d+", versions[name])[:2])) >= least


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "deploy/release"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / SCRIPT, folder)
    (tmp_path / f"{SCRIPT}.lock").write_text(
        f"# of 2026-10-30\na 1.0-1 {'0' * 64}\nsrc:b 2.0-1 {'0' * 64}\n"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").write_text(APT)
    (tmp_path / "bin/apt-get").chmod(0o755)
    return tmp_path


def run(checkout: pathlib.Path, **environment: str) -> str:
    done = subprocess.run(
        [checkout / SCRIPT, "true"],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "DEBIAN_MIRROR": "http://mirror.invalid/debian",
            "PATH": f"{checkout}/bin:{os.environ['PATH']}",
            **environment,
        },
    )
    assert done.returncode == 1
    assert not (checkout / ".tools/server_root").exists()
    return done.stderr.splitlines()[-1]


def test_a_version_that_is_no_longer_served_is_a_sentence(checkout: pathlib.Path) -> None:
    said = run(checkout)
    assert "set DEBIAN_MIRROR to a snapshot of its archive of 2026-10-30" in said
    assert "server_root --lock" in said


def test_another_hash_is_refused(checkout: pathlib.Path) -> None:
    assert re.match(r"server_root: a 1\.0-1 has another SHA-256 than ", run(checkout, SERVED="1"))


def test_no_archive_is_a_sentence(checkout: pathlib.Path) -> None:
    script = checkout / SCRIPT
    script.write_text(script.read_text().replace("/etc/apt/", f"{checkout}/no/"))
    assert run(checkout, DEBIAN_MIRROR="").endswith("set DEBIAN_MIRROR to the address of one")
