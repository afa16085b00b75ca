"""The folder that a release's server is compiled in: its lock, and the sentences of what can fail. apt is a stand-in."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = "deploy/release/server_root"
LINES = (ROOT / f"{SCRIPT}.lock").read_text().splitlines()
ARM64 = (ROOT / f"{SCRIPT}_arm64.lock").read_text().splitlines()
# Lists are read; a download leaves a file of the name that apt gives it, or is refused as apt refuses it.
APT = """#!/bin/sh
case "$*" in
  *update*) ;;
  *'download a=1.0-1'*) [ "$SERVED" ] && echo other >a_1.0-1_amd64.deb || { echo "E: Version '1.0-1' for 'a' was not found" >&2; exit 100; } ;;
  *'download d=3.0-1 c:arm64=1:2.0-1'*) printf d >d_3.0-1_all.deb; echo other >c_1%3a2.0-1_arm64.deb ;;
esac
"""


@pytest.mark.parametrize("lines", [LINES, ARM64])
def test_each_line_of_a_lock_is_a_package_a_version_and_a_hash(lines: list[str]) -> None:
    assert re.search(r"of \d{4}-\d\d-\d\d", lines[0])
    assert "://" not in "".join(lines)
    for line in lines[1:]:
        assert re.fullmatch(r"(src:)?[a-z0-9][a-z0-9.+-]+(:arm64)? \S+ [0-9a-f]{64}", line)


def test_the_libraries_for_arm64_are_the_same_versions() -> None:
    versions, foreign = (dict(line.split()[:2] for line in lines[1:]) for lines in (LINES, ARM64))
    libraries = {
        name.removesuffix(":arm64"): version
        for name, version in foreign.items()
        if name.endswith(":arm64")
    }
    assert {"libgrpc++-dev", "libprotobuf-dev", "libssl-dev", "libc-ares-dev"} <= set(libraries)
    assert libraries.items() <= versions.items()
    # Unpacked beside the packages of the other lock, they replace none of them.
    assert not versions.keys() & foreign.keys()
    compiler = foreign["g++-16-aarch64-linux-gnu"].partition("-")[0]
    assert compiler == versions["g++-16"].partition("-")[0]


def test_the_lock_has_libraries_without_the_known_holes() -> None:
    versions = dict(line.split()[:2] for line in LINES[1:])
    for name, least in (
        ("libgrpc++-dev", (1, 83)),
        ("libgrpc-dev", (1, 83)),
        ("libssl-dev", (3, 5)),
    ):
        assert tuple(map(int, re.findall(r"\d+", versions[name])[:2])) >= least


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "deploy/release"
    folder.mkdir(parents=True)
    for name in (SCRIPT, "deploy/release/unpack"):
        shutil.copy(ROOT / name, folder)
    (tmp_path / f"{SCRIPT}.lock").write_text(
        f"# of 2026-10-30\na 1.0-1 {'0' * 64}\nsrc:b 2.0-1 {'0' * 64}\n"
    )
    (tmp_path / f"{SCRIPT}_arm64.lock").write_text(
        f"# of 2026-10-30\nd 3.0-1 {sha256(b'd')}\nc:arm64 1:2.0-1 {'0' * 64}\n"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").write_text(APT)
    (tmp_path / "bin/apt-get").chmod(0o755)
    return tmp_path


def run(checkout: pathlib.Path, *options: str, **environment: str) -> str:
    done = subprocess.run(
        [checkout / SCRIPT, *options, "true"],
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
    assert not (checkout / ".tools/server_root" / ("arm64" if options else "")).exists()
    return done.stderr.splitlines()[-1]


def test_a_version_that_is_no_longer_served_is_a_sentence(checkout: pathlib.Path) -> None:
    said = run(checkout)
    assert "set DEBIAN_MIRROR to a snapshot of its archive of 2026-10-30" in said
    assert "server_root --lock" in said


def test_another_hash_is_refused(checkout: pathlib.Path) -> None:
    assert re.match(r"server_root: a 1\.0-1 has another SHA-256 than ", run(checkout, SERVED="1"))


def test_another_hash_of_a_library_for_arm64_is_refused(checkout: pathlib.Path) -> None:
    root = checkout / ".tools/server_root"
    root.mkdir(parents=True)
    (root / "lock").write_text(f"{sha256((checkout / f'{SCRIPT}.lock').read_bytes())}  -\n")
    said = run(checkout, "--arm64")
    assert re.match(r"server_root: c:arm64 1:2\.0-1 has another SHA-256 than .*_arm64\.lock;", said)


def test_no_archive_is_a_sentence(checkout: pathlib.Path) -> None:
    script = checkout / SCRIPT
    script.write_text(script.read_text().replace("/etc/apt/", f"{checkout}/no/"))
    assert run(checkout, DEBIAN_MIRROR="").endswith("set DEBIAN_MIRROR to the address of one")
